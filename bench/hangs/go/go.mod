module procession/bench/hangs/go

go 1.22
