// The workloads of notifications, channels for one value, watches, broadcasts, groups and files. Go has channels for all
// of these: one for each receiver if there are several. A watch is a value with a channel that is closed when it changes.
package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

func notify(scale uint64) ([]float64, error) {
	trips := of(1_000_000, scale)
	ping, pong := make(chan struct{}, 1), make(chan struct{}, 1)
	start := time.Now()
	go func() {
		for range trips {
			<-ping
			pong <- struct{}{}
		}
	}()
	for range trips {
		ping <- struct{}{}
		<-pong
	}
	return each(start, trips), nil
}

func oneshot(scale uint64) ([]float64, error) {
	count := of(1_000_000, scale)
	var sum uint64
	start := time.Now()
	for number := range count {
		channel := make(chan uint64, 1)
		channel <- number
		sum += <-channel
	}
	values := each(start, count)
	start = time.Now()
	for number := range count {
		channel := make(chan uint64, 1)
		go func() { channel <- number }()
		sum += <-channel
	}
	values = append(values, each(start, count)...)
	return values, check("the sum of the values", count*(count-1), sum)
}

// Counts down, and tells when it is at zero.
type latch struct {
	left atomic.Int64
	open chan struct{}
}

func (l *latch) countDown() {
	if l.left.Add(-1) == 0 {
		l.open <- struct{}{}
	}
}

// A change closes the channel of the value before. The documentation of `sync.Cond` advises to do so where waits are to
// be cancelled or selected, which a watch is for.
func watch(scale uint64) ([]float64, error) {
	type version struct {
		value   uint64
		changed chan struct{}
	}
	const watchers = 8
	changes := of(100_000, scale)
	var present atomic.Pointer[version]
	present.Store(&version{0, make(chan struct{})})
	unseen := latch{open: make(chan struct{}, 1)}
	sums := make(chan uint64, watchers)
	for range watchers {
		seen := present.Load()
		go func() {
			var sum uint64
			for seen.value < changes {
				<-seen.changed
				seen = present.Load()
				sum += seen.value
				unseen.countDown()
			}
			sums <- sum
		}()
	}
	start := time.Now()
	for change := uint64(1); change <= changes; change++ {
		unseen.left.Store(watchers)
		before := present.Swap(&version{change, make(chan struct{})})
		close(before.changed)
		<-unseen.open
	}
	values := each(start, changes*watchers)
	for range watchers {
		if err := check("the sum of the values", changes*(changes+1)/2, <-sums); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// A receiver of a broadcast. If it is too slow, its oldest message makes room, and it learns of the number.
type receiver struct {
	messages chan uint64
	missed   atomic.Uint64
}

// There is one sender.
func (r *receiver) send(message uint64) {
	for {
		select {
		case r.messages <- message:
			return
		default:
		}
		select {
		case <-r.messages:
			r.missed.Add(1)
		default:
		}
	}
}

func (r *receiver) receive() (message, missed uint64) {
	message = <-r.messages
	if r.missed.Load() > 0 {
		missed = r.missed.Swap(0)
	}
	return message, missed
}

func broadcast(scale uint64) ([]float64, error) {
	const receivers, atOnce = 8, 1000
	batches := of(200, scale)
	messages := batches * atOnce
	behind := latch{open: make(chan struct{}, 1)}
	sums := make(chan uint64, receivers)
	var all [receivers]receiver
	for at := range all {
		own := &all[at]
		own.messages = make(chan uint64, 1024)
		go func() {
			var sum uint64
			for range batches {
				for range atOnce {
					message, _ := own.receive()
					sum += message
				}
				behind.countDown()
			}
			sums <- sum
		}()
	}
	start := time.Now()
	for batch := range batches {
		behind.left.Store(receivers)
		for message := range uint64(atOnce) {
			for at := range all {
				all[at].send(batch*atOnce + message)
			}
		}
		<-behind.open
	}
	values := each(start, messages*receivers)
	for range receivers {
		if err := check("the sum of the messages", messages*(messages-1)/2, <-sums); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func joinSet(scale uint64) ([]float64, error) {
	const atOnce = 1000
	count := of(1000, scale) * atOnce
	results := make(chan uint64, atOnce)
	var sum uint64
	start := time.Now()
	for number := range count {
		go func() { results <- number }()
		if (number+1)%atOnce == 0 {
			for range atOnce {
				sum += <-results
			}
		}
	}
	return each(start, count), check("the sum of the outputs", count*(count-1)/2, sum)
}

func groupBroadcast(scale uint64) ([]float64, error) {
	const members = 10_000
	messages := of(100, scale)
	unreceived := latch{open: make(chan struct{}, 1)}
	sums := make(chan uint64, members)
	var channels [members]chan uint64
	for at := range channels {
		channel := make(chan uint64, 1)
		channels[at] = channel
		go func() {
			var sum uint64
			for range messages {
				sum += <-channel
				unreceived.countDown()
			}
			sums <- sum
		}()
	}
	start := time.Now()
	for message := uint64(1); message <= messages; message++ {
		unreceived.left.Store(members)
		for _, channel := range channels {
			channel <- message
		}
		<-unreceived.open
	}
	values := each(start, messages*members)
	for range members {
		if err := check("the sum of the messages", messages*(messages+1)/2, <-sums); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func scratchFile(name string, length uint64) (string, error) {
	path := filepath.Join(os.TempDir(), name+"-"+strconv.Itoa(os.Getpid()))
	content := make([]byte, length)
	for at := range content {
		content[at] = 1
	}
	return path, os.WriteFile(path, content, 0o600)
}

func readWhole(path string, count uint64) (uint64, error) {
	var bytes uint64
	for range count {
		content, err := os.ReadFile(path)
		if err != nil {
			return bytes, err
		}
		bytes += uint64(len(content))
	}
	return bytes, nil
}

func fsRead(scale uint64) ([]float64, error) {
	const atOnce, small = 16, 4 << 10
	path, err := scratchFile("fs-read-small", small)
	defer os.Remove(path)
	if err != nil {
		return nil, err
	}
	count := of(20_000, scale)
	start := time.Now()
	bytes, err := readWhole(path, count)
	if err != nil {
		return nil, err
	}
	values := each(start, count)

	eachCount := (count + atOnce - 1) / atOnce
	type read struct {
		bytes uint64
		err   error
	}
	reads := make(chan read, atOnce)
	start = time.Now()
	for range atOnce {
		go func() {
			bytes, err := readWhole(path, eachCount)
			reads <- read{bytes, err}
		}()
	}
	for range atOnce {
		read := <-reads
		bytes += read.bytes
		err = errors.Join(err, read.err)
	}
	values = append(values, each(start, eachCount*atOnce)...)
	if err = errors.Join(err, check("the bytes of all files", (count+eachCount*atOnce)*small, bytes)); err != nil {
		return nil, err
	}

	length := of(16<<20, scale)
	large, err := scratchFile("fs-read-large", length)
	defer os.Remove(large)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(large)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var buffer [small]byte
	var total, parts uint64
	start = time.Now()
	for {
		part, err := file.Read(buffer[:])
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		total += uint64(part)
		parts++
	}
	values = append(values, each(start, parts)...)
	return values, check("the bytes of the large file", length, total)
}
