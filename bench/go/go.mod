module procession/bench/go

go 1.22
