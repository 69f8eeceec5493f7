// The clinic on Go. A row that never ends is ended by `run`.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const width = 2

// A service has timers or connections, so not all of its goroutines are asleep forever. Without
// them the runtime would end the program, where it sees that nothing can go on.
func background() {
	go func() {
		for {
			time.Sleep(time.Second)
		}
	}()
}

func ends(late time.Duration) {
	fmt.Printf("ends %.1f\n", max(0, late.Seconds()*1000))
}

func late(due time.Time, told <-chan time.Time) {
	ends((<-told).Sub(due))
}

// hold blocks the thread forever, without a word to the scheduler.
func hold() {
	for {
		syscall.RawSyscall(syscall.SYS_PAUSE, 0, 0, 0)
	}
}

var sink uint64

func compute() {
	for i := uint64(0); ; i++ {
		if i == 1<<63 {
			sink = i
		}
	}
}

var rows = map[string]func(){
	"driver": func() {
		told := make(chan time.Time)
		due := time.Now().Add(100 * time.Millisecond)
		go func() {
			time.Sleep(50 * time.Millisecond)
			hold()
		}()
		go func() {
			time.Sleep(100 * time.Millisecond)
			told <- time.Now()
		}()
		late(due, told)
	},
	"lifo": func() {
		told, wakes := make(chan time.Time), make(chan bool, 1)
		go func() {
			<-wakes
			told <- time.Now()
		}()
		due := time.Now().Add(50 * time.Millisecond)
		go func() {
			time.Sleep(50 * time.Millisecond)
			wakes <- true
			hold()
		}()
		late(due, told)
	},
	"wake_race": func() {
		const rounds = 200_000
		one, other := make(chan bool, 1), make(chan bool, 1)
		go func() {
			for range rounds {
				<-one
				other <- true
			}
		}()
		for range rounds {
			one <- true
			<-other
		}
		ends(0)
	},
	"steal_half": func() {
		const bursts, burst = 200, 1000
		runs := make([]atomic.Int32, bursts*burst)
		var counted atomic.Int64
		told := make(chan bool)
		go func() {
			for number := range bursts * burst {
				go func() {
					runs[number].Add(1)
					if counted.Add(1) == bursts*burst {
						told <- true
					}
				}()
				if number%burst == 0 {
					runtime.Gosched()
				}
			}
		}()
		<-told
		for i := range runs {
			if runs[i].Load() != 1 {
				fmt.Println("refused 0.0 a goroutine did not run once")
				return
			}
		}
		ends(0)
	},
	"hogs":      func() { hogs(width) },
	"many_hogs": func() { hogs(4 * width) },
	"many_blocked": func() {
		told := make(chan time.Time)
		for range 100 {
			go func() {
				for {
					pause := syscall.Timespec{Sec: 3600}
					syscall.Nanosleep(&pause, nil)
				}
			}()
		}
		time.Sleep(500 * time.Millisecond)
		due := time.Now()
		go func() { told <- time.Now() }()
		late(due, told)
	},
	"yield_loop": func() {
		runtime.GOMAXPROCS(1)
		told := make(chan time.Time)
		for range 2 {
			go func() {
				for {
					runtime.Gosched()
				}
			}()
		}
		due := time.Now().Add(50 * time.Millisecond)
		go func() {
			time.Sleep(50 * time.Millisecond)
			told <- time.Now()
		}()
		late(due, told)
	},
	"ready_loop": func() {
		runtime.GOMAXPROCS(1)
		told, self := make(chan time.Time), make(chan bool, 2)
		go func() {
			for {
				self <- true
				<-self
			}
		}()
		time.Sleep(50 * time.Millisecond)
		due := time.Now()
		go func() { told <- time.Now() }()
		late(due, told)
	},
	"flooded_timer": func() {
		self := make(chan bool, 2000)
		due := time.Now().Add(50 * time.Millisecond)
		timer := time.After(50 * time.Millisecond)
		for range 1000 {
			self <- true
		}
		for {
			select {
			case <-self:
				self <- true
			case <-timer:
				ends(time.Since(due))
				return
			}
		}
	},
	"block_on": func() {
		// A channel blocks a goroutine and not its thread.
		told := make(chan time.Time)
		var atOnce sync.WaitGroup
		atOnce.Add(width)
		due := time.Now()
		for range width {
			go func() {
				atOnce.Done()
				atOnce.Wait()
				done := make(chan bool)
				go func() { done <- true }()
				<-done
				told <- time.Now()
			}()
		}
		<-told
		late(due, told)
	},
	"nested_blocking": func() {
		// A pool of goroutines by hand, because the standard library has none.
		jobs := make(chan func(), 100)
		for range width {
			go func() {
				for job := range jobs {
					job()
				}
			}()
		}
		var outer, atOnce sync.WaitGroup
		atOnce.Add(width)
		for range width {
			outer.Add(1)
			jobs <- func() {
				atOnce.Done()
				atOnce.Wait()
				inner := make(chan bool)
				jobs <- func() { inner <- true }
				<-inner
				outer.Done()
			}
		}
		outer.Wait()
		ends(0)
	},
	"own_pool": func() {
		jobs, done := make(chan func()), make(chan bool)
		go func() {
			for job := range jobs {
				job()
			}
		}()
		jobs <- func() {
			jobs <- func() {}
			done <- true
		}
		<-done
		ends(0)
	},
	"own_mailbox": func() {
		told := make(chan time.Time)
		begun := time.Now()
		go func() {
			mailbox := make(chan int, 1)
			mailbox <- 1
			mailbox <- 2
			<-mailbox
			told <- time.Now()
		}()
		late(begun, told)
	},
	"call_cycle": func() {
		type request chan bool
		one, other := make(chan request), make(chan request)
		serve := func(mailbox, next chan request) {
			for asked := range mailbox {
				answer := make(request)
				next <- answer
				asked <- <-answer
			}
		}
		go serve(one, other)
		go serve(other, one)
		answer := make(request)
		one <- answer
		<-answer
		ends(0)
	},
	"recursive_read": func() {
		told := make(chan time.Time)
		var lock sync.RWMutex
		go func() {
			time.Sleep(50 * time.Millisecond)
			lock.Lock()
			lock.Unlock()
		}()
		due := time.Now().Add(100 * time.Millisecond)
		go func() {
			lock.RLock()
			time.Sleep(100 * time.Millisecond)
			lock.RLock()
			lock.RUnlock()
			lock.RUnlock()
			told <- time.Now()
		}()
		late(due, told)
	},
	"lock_over_children": func() {
		var lock sync.Mutex
		var all sync.WaitGroup
		for range 8 {
			all.Add(1)
			go func() {
				lock.Lock()
				var children sync.WaitGroup
				for range 8 {
					children.Add(1)
					go children.Done()
				}
				children.Wait()
				lock.Unlock()
				all.Done()
			}()
		}
		all.Wait()
		ends(0)
	},
	"abandoned_send": func() {
		begun, told, result := time.Now(), make(chan time.Time), make(chan int)
		go func() {
			time.Sleep(50 * time.Millisecond)
			result <- 1
			told <- time.Now()
		}()
		select {
		case <-result:
		case <-time.After(10 * time.Millisecond):
		}
		result = nil
		leaked(begun, told)
	},
	"leak": func() {
		begun, told := time.Now(), make(chan time.Time)
		go func() {
			self := make(chan bool)
			<-self
			told <- time.Now()
		}()
		leaked(begun, told)
	},
	"shutdown": func() {
		go hold()
		go compute()
		time.Sleep(50 * time.Millisecond)
		ends(0)
	},
}

func hogs(count int) {
	told := make(chan time.Time)
	for range count {
		go compute()
	}
	time.Sleep(100 * time.Millisecond)
	due := time.Now()
	go func() { told <- time.Now() }()
	late(due, told)
}

// leaked asks the runtime which goroutines can never go on, if it can tell.
func leaked(begun time.Time, told <-chan time.Time) {
	select {
	case then := <-told:
		ends(then.Sub(begun))
	case <-time.After(500 * time.Millisecond):
		profile := pprof.Lookup("goroutineleak")
		if profile == nil {
			select {}
		}
		// The garbage collector looks for them only for a profile that is written.
		discard, _ := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		profile.WriteTo(discard, 1)
		if profile.Count() > 0 {
			fmt.Println("hangs the profile `goroutineleak` names it")
			return
		}
		select {}
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: PROGRAM list | ROW")
		os.Exit(2)
	}
	if os.Args[1] == "list" {
		for name := range rows {
			fmt.Println(name)
		}
		return
	}
	row, has := rows[os.Args[1]]
	if !has {
		os.Exit(2)
	}
	runtime.GOMAXPROCS(width)
	background()
	row()
	os.Exit(0)
}
