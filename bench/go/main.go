// The workloads of `bench/own` on Go, written in the style of its documentation. README.md
// describes how to run them.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// At most the CPUs of the machine, as in the other runtimes.
const width = 2

const roundsMax = 1000

type figure struct{ name, unit string }

type workload struct {
	name    string
	figures []figure
	run     func(scale uint64) ([]float64, error)
}

var workloads = []workload{
	{"spawn", []figure{{"spawn", "ns"}}, spawn},
	{"skynet", []figure{{"skynet", "ns"}}, skynet},
	{"pingpong", []figure{{"pingpong", "ns"}}, pingpong},
	{"ring", []figure{{"ring", "ns"}}, ring},
	{"fanin", []figure{{"fanin", "ns"}}, fanin},
	{"yield", []figure{{"yield", "ns"}}, yield},
	{"step", []figure{{"step", "ns"}}, step},
	{"idle_mem", []figure{{"idle_mem", "bytes"}}, idleMem},
	{"timers_cancel", []figure{{"timers_cancel", "ns"}}, timersCancel},
	{"timers_fire", []figure{{"timers_fire", "ns"}, {"timers_fire_cpu", "ns"}}, timersFire},
	{"sleep_50us", []figure{{"sleep_50us", "us"}}, sleep50us},
	{"echo", []figure{{"echo_50", "ns"}, {"echo_50_cpu", "ns"}, {"echo_200", "ns"}, {"echo_200_cpu", "ns"},
		{"echo_1000", "ns"}, {"echo_1000_cpu", "ns"}}, echo},
	{"http", []figure{{"http", "ns"}, {"http_cpu", "ns"}}, serveHTTP},
	{"notify", []figure{{"notify", "ns"}}, notify},
	{"oneshot", []figure{{"oneshot", "ns"}, {"oneshot_spawn", "ns"}}, oneshot},
	{"watch", []figure{{"watch", "ns"}}, watch},
	{"broadcast", []figure{{"broadcast", "ns"}}, broadcast},
	{"joinset", []figure{{"joinset", "ns"}}, joinSet},
	{"group_broadcast", []figure{{"group_broadcast", "ns"}}, groupBroadcast},
	{"fs_read", []figure{{"fs_read", "ns"}, {"fs_read_many", "ns"}, {"fs_read_part", "ns"}}, fsRead},
	{"pool", poolFigures("pool"), pool(50_000, 1)},
	{"pool_many", poolFigures("pool_many"), pool(50_000, 1000)},
	{"pool_large", poolFigures("pool_large"), pool(200_000, 1)},
	{"pool_large_many", poolFigures("pool_large_many"), pool(200_000, 1000)},
	{"timer_behind_hog", []figure{{"timer_behind_hog", "us"}, {"timer_behind_hog_max", "us"}}, timerBehindHog},
	{"tick_beside_steps", tickFigures(), tickBesideSteps},
	{"shares", []figure{{"shares_channels", "most/least"}, {"shares_yields", "most/least"},
		{"shares_channels_2", "most/least"}, {"shares_yields_2", "most/least"}}, shares},
	{"idle_after", []figure{{"idle_after", "wake-ups"}, {"idle_after_nothing", "wake-ups"}, {"idle_after_block", "wake-ups"},
		{"idle_after_compute", "wake-ups"}, {"idle_after_sockets", "wake-ups"}, {"idle_after_timers", "wake-ups"}}, idleAfter},
}

func of(count, scale uint64) uint64 { return (count + scale - 1) / scale }

func each(start time.Time, count uint64) []float64 {
	return []float64{float64(time.Since(start).Nanoseconds()) / float64(count)}
}

func check(what string, expected, found uint64) error {
	if expected != found {
		return fmt.Errorf("%s: %d instead of %d", what, found, expected)
	}
	return nil
}

func spawn(scale uint64) ([]float64, error) {
	count := of(1_000_000, scale)
	var ended sync.WaitGroup
	start := time.Now()
	ended.Add(int(count))
	for range count {
		go ended.Done()
	}
	ended.Wait()
	return each(start, count), nil
}

func node(first, leaves uint64, sum chan<- uint64) {
	if leaves == 1 {
		sum <- first
		return
	}
	below := leaves / 10
	sums := make(chan uint64, 10)
	for child := range uint64(10) {
		go node(first+child*below, below, sums)
	}
	var total uint64
	for range 10 {
		total += <-sums
	}
	sum <- total
}

func skynet(scale uint64) ([]float64, error) {
	leaves := of(1_000_000, scale)
	sum := make(chan uint64, 1)
	start := time.Now()
	go node(0, leaves, sum)
	total := <-sum
	return each(start, leaves), check("the sum of the leaves' numbers", leaves*(leaves-1)/2, total)
}

func pingpong(scale uint64) ([]float64, error) {
	trips := of(1_000_000, scale)
	toPing, toPong := make(chan uint64), make(chan uint64)
	go func() {
		for number := range toPong {
			toPing <- number + 1
		}
	}()
	start := time.Now()
	var number uint64
	for range trips {
		toPong <- number
		number = <-toPing
	}
	values := each(start, trips)
	close(toPong)
	return values, check("the additions", trips, number)
}

func ring(scale uint64) ([]float64, error) {
	const links = 503
	hops := of(2_000_000, scale)
	// A message may be on its way while its sender ends.
	first := make(chan uint64, 1)
	next := first
	made := make(chan uint64, links)
	link := func(here <-chan uint64, next chan<- uint64) {
		var passed uint64
		for {
			number := <-here
			if number == 0 {
				next <- 0
				made <- passed
				return
			}
			next <- number - 1
			passed++
		}
	}
	for range links - 1 {
		here := make(chan uint64, 1)
		go link(here, next)
		next = here
	}
	start := time.Now()
	next <- hops
	link(first, next)
	values := each(start, hops)
	var sum uint64
	for range links {
		sum += <-made
	}
	return values, check("the hops", hops, sum)
}

func fanin(scale uint64) ([]float64, error) {
	const senders = 8
	messages := of(4_000_000, scale)
	share := messages / senders
	// Go has no unbounded channel.
	here := make(chan uint64, 1024)
	start := time.Now()
	for sender := range uint64(senders) {
		go func() {
			for number := sender * share; number < (sender+1)*share; number++ {
				here <- number
			}
		}()
	}
	var sum uint64
	for range messages {
		sum += <-here
	}
	return each(start, messages), check("the sum of the messages", messages*(messages-1)/2, sum)
}

func yield(scale uint64) ([]float64, error) {
	routines, count := of(1000, scale), of(1000, scale)
	given := make(chan uint64, routines)
	start := time.Now()
	for range routines {
		go func() {
			var made uint64
			for made < count {
				runtime.Gosched()
				made++
			}
			given <- made
		}()
	}
	var sum uint64
	for range routines {
		sum += <-given
	}
	return each(start, routines*count), check("the yields", routines*count, sum)
}

func step(scale uint64) ([]float64, error) {
	count := of(1_000_000, scale)
	var sum uint64
	start := time.Now()
	for number := range count {
		result := make(chan uint64, 1)
		go func() { result <- number }()
		sum += <-result
	}
	return each(start, count), check("the sum of the results", count*(count-1)/2, sum)
}

func resident() (uint64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}

func idleMem(scale uint64) ([]float64, error) {
	count := of(100_000, scale)
	runtime.GC()
	debug.FreeOSMemory()
	before, err := resident()
	if err != nil {
		return nil, err
	}
	addresses := make([]chan struct{}, count)
	var there, left sync.WaitGroup
	there.Add(int(count))
	left.Add(int(count))
	for at := range addresses {
		mailbox := make(chan struct{}, 1)
		addresses[at] = mailbox
		go func() {
			there.Done()
			<-mailbox
			left.Done()
		}()
	}
	there.Wait()
	after, err := resident()
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		address <- struct{}{}
	}
	left.Wait()
	return []float64{float64(after-min(before, after)) / float64(count)}, nil
}

func timersCancel(scale uint64) ([]float64, error) {
	const routines, delayed = 2, 1000
	live, count := of(32_768, scale), of(1_000_000, scale)
	after := func() time.Duration { return time.Duration(1000+rand.Uint64N(29_000)) * time.Millisecond }
	var ready, ended sync.WaitGroup
	ready.Add(routines)
	ended.Add(routines)
	begin := make(chan struct{})
	fired := func() {}
	for range routines {
		go func() {
			timers := make([]*time.Timer, 0, live)
			for range live {
				timers = append(timers, time.AfterFunc(after(), fired))
			}
			last := make([]*time.Timer, delayed)
			for at := range last {
				last[at] = time.AfterFunc(after(), fired)
			}
			ready.Done()
			<-begin
			for number := range count {
				at := number % delayed
				last[at].Stop()
				last[at] = time.AfterFunc(after(), fired)
			}
			ended.Done()
			for _, timer := range append(timers, last...) {
				timer.Stop()
			}
		}()
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	ended.Wait()
	// They sleep in parallel, so this is the time of one.
	return each(start, count), nil
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func timersFire(scale uint64) ([]float64, error) {
	count, within := of(1_000_000, scale), of(1_000_000, scale)
	start, cpu := time.Now(), cpuTime()
	var ended sync.WaitGroup
	ended.Add(int(count))
	for range count {
		sleeps := time.Duration(rand.Uint64N(within)) * time.Microsecond
		go func() {
			time.Sleep(sleeps)
			ended.Done()
		}()
	}
	ended.Wait()
	return append(each(start, count), float64((cpuTime()-cpu).Nanoseconds())/float64(count)), nil
}

func sleep50us(scale uint64) ([]float64, error) {
	slept := make([]float64, of(5000, scale))
	for at := range slept {
		start := time.Now()
		time.Sleep(50 * time.Microsecond)
		slept[at] = float64(time.Since(start).Nanoseconds()) / 1000
	}
	sort.Float64s(slept)
	if slept[0] < 50 {
		return nil, fmt.Errorf("a sleep ended before its time")
	}
	return []float64{slept[len(slept)/2]}, nil
}

func timerBehindHog(scale uint64) ([]float64, error) {
	ticks := of(1000, scale)
	stop := make(chan struct{})
	var hogEnded sync.WaitGroup
	hogEnded.Add(1)
	go func() {
		defer hogEnded.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			for start := time.Now(); time.Since(start) < 10*time.Millisecond; {
			}
			time.Sleep(time.Millisecond)
		}
	}()
	var sum, latest float64
	due := time.Now()
	for range ticks {
		due = due.Add(time.Millisecond)
		time.Sleep(time.Until(due))
		late := float64(time.Since(due).Nanoseconds()) / 1000
		sum += late
		latest = max(latest, late)
	}
	close(stop)
	hogEnded.Wait()
	return []float64{sum / float64(ticks), latest}, nil
}

// Serves that many connections, and waits for their clients. Returns the wall time and the CPU time
// for each of count.
func onLoopback(connections int, count uint64, serve func(net.Listener), client func(net.Conn) error) ([]float64, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	go serve(listener)
	streams := make([]net.Conn, connections)
	for at := range streams {
		if streams[at], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			return nil, err
		}
		defer streams[at].Close()
	}
	failures := make(chan error, connections)
	start, cpu := time.Now(), cpuTime()
	for _, stream := range streams {
		go func() { failures <- client(stream) }()
	}
	for range streams {
		if failure := <-failures; failure != nil {
			err = failure
		}
	}
	return append(each(start, count), float64((cpuTime()-cpu).Nanoseconds())/float64(count)), err
}

func echo(scale uint64) ([]float64, error) {
	const size = 64
	var figures []float64
	for _, connections := range []int{50, 200, 1000} {
		trips := of(200_000, scale) / uint64(connections)
		serve := func(listener net.Listener) {
			for {
				stream, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer stream.Close()
					var buffer [size]byte
					for {
						count, err := stream.Read(buffer[:])
						if err != nil {
							return
						}
						if _, err := stream.Write(buffer[:count]); err != nil {
							return
						}
					}
				}()
			}
		}
		client := func(stream net.Conn) error {
			var buffer [size]byte
			for range trips {
				if _, err := stream.Write(buffer[:]); err != nil {
					return err
				}
				if _, err := io.ReadFull(stream, buffer[:]); err != nil {
					return err
				}
			}
			return nil
		}
		found, err := onLoopback(connections, trips*uint64(connections), serve, client)
		if err != nil {
			return nil, err
		}
		figures = append(figures, found...)
	}
	return figures, nil
}

const httpBody = "Hello, World!"

// net/http serves. The clients are written by hand, like those of the other runtimes.
func serveHTTP(scale uint64) ([]float64, error) {
	const connections = 50
	requests := of(200_000, scale) / connections
	answer := func(writer http.ResponseWriter, _ *http.Request) { io.WriteString(writer, httpBody) }
	server := http.Server{Handler: http.HandlerFunc(answer)}
	serve := func(listener net.Listener) { server.Serve(listener) }
	client := func(stream net.Conn) error {
		request := []byte("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
		var answer [1024]byte
		for range requests {
			if _, err := stream.Write(request); err != nil {
				return err
			}
			for length := 0; !bytes.HasSuffix(answer[:length], []byte(httpBody)); {
				count, err := stream.Read(answer[length:])
				if err != nil {
					return err
				}
				length += count
			}
		}
		return nil
	}
	return onLoopback(connections, requests*connections, serve, client)
}

// Blocks the thread. time.Sleep would only put the goroutine aside.
func blocks(duration time.Duration) {
	left := syscall.NsecToTimespec(duration.Nanoseconds())
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

func computes(duration time.Duration) {
	for start := time.Now(); time.Since(start) < duration; {
	}
}

var tickSteps = []struct {
	name string
	us   uint64
}{{"0.1", 100}, {"1", 1000}, {"9", 9000}}

var tickRoutines = []int{1, 2, 4, 50}

func tickFigures() (figures []figure) {
	for _, kind := range []string{"block", "compute"} {
		for _, step := range tickSteps {
			for _, routines := range tickRoutines {
				figures = append(figures, figure{fmt.Sprintf("tick_%s_%s_%d", kind, step.name, routines), "ms"})
			}
		}
	}
	return figures
}

func microseconds(count, scale uint64) time.Duration {
	return time.Duration(of(count, scale)) * time.Microsecond
}

func tickBesideSteps(scale uint64) (figures []float64, err error) {
	for _, act := range []func(time.Duration){blocks, computes} {
		for _, step := range tickSteps {
			for _, routines := range tickRoutines {
				latest := latestTick(func() { act(microseconds(step.us, scale)) }, routines, microseconds(750_000, scale))
				figures = append(figures, float64(latest.Nanoseconds())/1e6)
			}
		}
	}
	return figures, nil
}

func latestTick(step func(), routines int, watched time.Duration) (latest time.Duration) {
	const period = time.Millisecond
	var stop atomic.Bool
	var ended sync.WaitGroup
	for range routines {
		ended.Add(1)
		go func() {
			defer ended.Done()
			for !stop.Load() {
				step()
				runtime.Gosched()
			}
		}()
	}
	for start := time.Now(); time.Since(start) < watched; {
		before := time.Now()
		time.Sleep(period)
		latest = max(latest, time.Since(before)-period)
	}
	stop.Store(true)
	ended.Wait()
	return latest
}

func shares(scale uint64) (figures []float64, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, among := range []struct{ width, pairs int }{{1, 9}, {2, 8}} {
		runtime.GOMAXPROCS(among.width)
		for _, takesTurns := range []func(*atomic.Bool) uint64{inChannels, inYields} {
			var stop atomic.Bool
			turns := make(chan uint64, among.pairs)
			for range among.pairs {
				go func() { turns <- takesTurns(&stop) }()
			}
			time.Sleep(microseconds(300_000, scale))
			stop.Store(true)
			most, least := uint64(1), uint64(math.MaxUint64)
			for range among.pairs {
				had := max(<-turns, 1)
				most, least = max(most, had), min(least, had)
			}
			figures = append(figures, float64(most)/float64(least))
		}
	}
	return figures, nil
}

// Starts a pair over two unbuffered channels. Returns the number of round trips.
func inChannels(stop *atomic.Bool) (turns uint64) {
	toPing, toPong := make(chan uint64), make(chan uint64)
	go func() {
		for number := range toPong {
			toPing <- number + 1
		}
	}()
	for !stop.Load() {
		toPong <- turns
		turns = <-toPing
	}
	close(toPong)
	return turns
}

func inYields(stop *atomic.Bool) (turns uint64) {
	for !stop.Load() {
		runtime.Gosched()
		turns++
	}
	return turns
}

// Returns the number of times that each other thread has given up the processor.
func sleepsOfOthers() (map[string]uint64, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	sleeps := map[string]uint64{}
	for _, thread := range threads {
		if thread.Name() == strconv.Itoa(syscall.Gettid()) {
			continue
		}
		// A thread may end meanwhile.
		status, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/status")
		_, count, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		count, _, _ = strings.Cut(strings.TrimSpace(count), "\n")
		sleeps[thread.Name()], _ = strconv.ParseUint(count, 10, 64)
	}
	return sleeps, nil
}

// The loads of the other runtimes, except declared blocking, which Go does not have.
func idleAfter(scale uint64) ([]float64, error) {
	// The measuring thread does not count.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	watched, step := microseconds(500_000, scale), microseconds(25_000, scale)
	figures := []float64{0}
	steps := func(act func(time.Duration)) func() error {
		return func() error {
			allOf(8, func(int) {
				for range 3 {
					act(step)
					time.Sleep(time.Millisecond)
				}
			})
			return nil
		}
	}
	timers := func() error {
		allOf(1000, func(number int) { time.Sleep(microseconds(100_000, scale) * time.Duration(number) / 1000) })
		return nil
	}
	var open []net.Conn
	sockets := func() error {
		for range 8 {
			stream, err := connected(of(1000, scale))
			if err != nil {
				return err
			}
			open = append(open, stream)
		}
		return nil
	}
	for _, load := range []func() error{func() error { return nil }, steps(blocks), steps(computes), sockets, timers} {
		if err := load(); err != nil {
			return nil, err
		}
		blocks(microseconds(600_000, scale))
		before, err := sleepsOfOthers()
		if err != nil {
			return nil, err
		}
		blocks(watched)
		after, err := sleepsOfOthers()
		if err != nil {
			return nil, err
		}
		var woken uint64
		for thread, count := range after {
			woken += count - min(count, before[thread])
		}
		figures = append(figures, float64(woken)/watched.Seconds())
		for _, stream := range open {
			stream.Close()
		}
		open = nil
	}
	figures[0] = slices.Max(figures)
	return figures, nil
}

func allOf(routines int, run func(number int)) {
	var ended sync.WaitGroup
	for number := range routines {
		ended.Add(1)
		go func() {
			defer ended.Done()
			run(number)
		}()
	}
	ended.Wait()
}

// Opens a connection. Its server has sent bytes back, and waits for more.
func connected(bytes uint64) (net.Conn, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	go func() {
		if stream, err := listener.Accept(); err == nil {
			io.Copy(stream, stream)
			stream.Close()
		}
	}()
	stream, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, err
	}
	var buffer [1]byte
	for range bytes {
		if _, err := stream.Write(buffer[:]); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(stream, buffer[:]); err != nil {
			return nil, err
		}
	}
	return stream, nil
}

func poolFigures(name string) []figure {
	return []figure{{name, "ms"}, {name + "_cpu", "ms"}, {name + "_peak", "MiB"}}
}

// Returns the peak of the resident memory since the reset, in MiB.
func peak() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, mark, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(mark)[0], 64)
	return kib / 1024, err
}

// Runs a goroutine for each job, and limits those that run at once by a channel.
func pool(capacity, submitters uint64) func(uint64) ([]float64, error) {
	return func(scale uint64) ([]float64, error) {
		jobs := of(1_000_000, scale)
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			return nil, err
		}
		start, cpu := time.Now(), cpuTime()
		permits := make(chan struct{}, of(capacity, scale))
		var done atomic.Uint64
		var ended sync.WaitGroup
		for number := range submitters {
			share := jobs / submitters
			if number < jobs%submitters {
				share++
			}
			ended.Add(1)
			go func() {
				defer ended.Done()
				for range share {
					permits <- struct{}{}
					ended.Add(1)
					go func() {
						defer ended.Done()
						time.Sleep(10 * time.Millisecond)
						done.Add(1)
						<-permits
					}()
				}
			}()
		}
		ended.Wait()
		wall, spent := time.Since(start), cpuTime()-cpu
		most, err := peak()
		if err != nil {
			return nil, err
		}
		figures := []float64{wall.Seconds() * 1000, spent.Seconds() * 1000, most}
		return figures, check("the jobs done", jobs, done.Load())
	}
}

func median(values []float64) float64 {
	sort.Float64s(values)
	return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
}

type line struct {
	Workload string  `json:"workload"`
	Runtime  string  `json:"runtime"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

func measure(workload workload, rounds int, scale uint64, asJSON bool, out *bufio.Writer) error {
	values := make([][]float64, len(workload.figures))
	first := 0
	if workload.name == "idle_mem" {
		// Measured once, in a program that has done nothing before. For several rounds, start it again.
		first, rounds = 1, 1
	}
	for round := first; round <= rounds; round++ {
		found, err := workload.run(scale)
		if err != nil {
			return fmt.Errorf("cannot measure %s: %w", workload.name, err)
		}
		// The first round does not count.
		if round > 0 {
			for at, value := range found {
				values[at] = append(values[at], value)
			}
		}
	}
	for at, figure := range workload.figures {
		value := median(values[at])
		if asJSON {
			text, err := json.Marshal(line{figure.name, "go", value, figure.unit})
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\n", text)
		} else {
			fmt.Fprintf(out, "%-20s %9.1f %s\n", figure.name, value, figure.unit)
		}
	}
	return out.Flush()
}

const usage = "usage: go-bench [--rounds N] [--json] [--tiny] [WORKLOAD]...\n"

func run(arguments []string) (int, error) {
	rounds, scale, asJSON := 5, uint64(1), false
	var chosen []workload
	for at := 0; at < len(arguments); at++ {
		switch argument := arguments[at]; argument {
		case "--json":
			asJSON = true
		case "--tiny":
			scale = 100
		case "--rounds":
			at++
			var err error
			if at < len(arguments) {
				rounds, err = strconv.Atoi(arguments[at])
			}
			if at == len(arguments) || err != nil || rounds < 1 || rounds > roundsMax {
				return 2, fmt.Errorf("--rounds wants a number from 1 to %d\n%s", roundsMax, usage)
			}
		default:
			known := false
			for _, workload := range workloads {
				if workload.name == argument {
					chosen, known = append(chosen, workload), true
				}
			}
			if !known {
				return 2, fmt.Errorf("unknown workload or option %s\n%s", argument, usage)
			}
		}
	}
	if chosen == nil {
		chosen = workloads
	}
	out := bufio.NewWriter(os.Stdout)
	for _, workload := range chosen {
		if err := measure(workload, rounds, scale, asJSON, out); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

func main() {
	runtime.GOMAXPROCS(min(width, runtime.NumCPU()))
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-bench:", err)
	}
	os.Exit(code)
}
