module procession/bench/cluster

go 1.22
