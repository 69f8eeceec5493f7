// The figures of `procession-cluster` (its bench `figures`) with `net/rpc` of Go, between two programs: round trips, calls in
// a row with 2048 under way, round trips beside large calls, and a server that is killed. It has no sends, no monitors and no
// patience of its own.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"
)

type Echo int

func (*Echo) Back(payload []byte, back *[]byte) error { *back = payload; return nil }
func (*Echo) Take(payload []byte, length *int) error  { *length = len(payload); return nil }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster-bench:", err)
		os.Exit(1)
	}
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	check(rpc.Register(new(Echo)))
	fmt.Println(listener.Addr())
	go rpc.Accept(listener)
	io.Copy(io.Discard, os.Stdin)
}

func start() (*exec.Cmd, *rpc.Client) {
	program, err := os.Executable()
	check(err)
	command := exec.Command(program, "serve")
	_, err = command.StdinPipe()
	check(err)
	out, err := command.StdoutPipe()
	check(err)
	check(command.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	check(err)
	client, err := rpc.Dial("tcp", strings.TrimSpace(line))
	check(err)
	return command, client
}

func print(what string, value float64, unit string) {
	fmt.Printf("plain %-28s %12.1f %s\n", what, value, unit)
}

func percentile(sorted []time.Duration, part float64) float64 {
	return float64(sorted[int(float64(len(sorted)-1)*part)].Nanoseconds()) / 1000
}

func trip(client *rpc.Client) time.Duration {
	payload := make([]byte, 100)
	var back []byte
	begin := time.Now()
	check(client.Call("Echo.Back", payload, &back))
	return time.Since(begin)
}

func trips(client *rpc.Client, count int) []time.Duration {
	all := make([]time.Duration, 0, count)
	for range count {
		all = append(all, trip(client))
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	return all
}

func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	check(err)
	system, err := strconv.Atoi(fields[12])
	check(err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

func calls(server *exec.Cmd, client *rpc.Client, count int) {
	both := func() time.Duration { return processorTime(os.Getpid()) + processorTime(server.Process.Pid) }
	begin, used := time.Now(), both()
	payload := make([]byte, 100)
	done := make(chan *rpc.Call, 4096)
	sent, taken := 0, 0
	for taken < count {
		for sent < count && sent-taken < 2048 {
			client.Go("Echo.Take", payload, new(int), done)
			sent++
		}
		check((<-done).Error)
		taken++
	}
	took := time.Since(begin)
	print("messages", float64(count)/took.Seconds()/1000, "thousand/s")
	print("processor time per message", float64((both()-used).Microseconds())/float64(count), "us")
}

func besideLarge(client *rpc.Client) {
	payload := make([]byte, 16<<20)
	done := make(chan *rpc.Call, 4)
	for range 4 {
		go client.Go("Echo.Take", payload, new(int), done)
	}
	var all []time.Duration
	for taken := 0; taken < 4; {
		all = append(all, trip(client))
		select {
		case call := <-done:
			check(call.Error)
			taken++
		default:
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	print("beside 64 MiB, p99", percentile(all, 0.99), "us")
	print("beside 64 MiB, longest", percentile(all, 1), "us")
}

func killed() time.Duration {
	server, client := start()
	trip(client)
	var back []byte
	pending := client.Go("Echo.Back", make([]byte, 100), &back, make(chan *rpc.Call, 1))
	<-pending.Done
	begin := time.Now()
	check(server.Process.Kill())
	for client.Call("Echo.Back", []byte{1}, &back) == nil {
	}
	took := time.Since(begin)
	server.Wait()
	return took
}

func main() {
	runtime.GOMAXPROCS(2)
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve()
		return
	}
	count, messages, kills := 20000, 500000, 5
	if len(os.Args) > 1 && os.Args[1] == "tiny" {
		count, messages, kills = 100, 2000, 1
	}
	server, client := start()
	trips(client, count/10)
	all := trips(client, count)
	print("round trip p50", percentile(all, 0.5), "us")
	print("round trip p99", percentile(all, 0.99), "us")
	calls(server, client, messages)
	besideLarge(client)
	check(server.Process.Kill())
	server.Wait()
	var downs []time.Duration
	for range kills {
		downs = append(downs, killed())
	}
	sort.Slice(downs, func(a, b int) bool { return downs[a] < downs[b] })
	print("killed to down", percentile(downs, 0.5)/1000, "ms")
}
