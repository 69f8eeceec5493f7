// Gather fetches the pages of a site and counts their words. After SIGTERM it finishes the pages
// that it has begun.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	fetchers = 64
	counters = 4
)

type page struct {
	number int
	text   string
}

type count struct {
	number, words int
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// fetchAll begins no further pages once it sees stop. If one fails, it cancels the others.
func fetchAll(ctx, stop context.Context, site string, total int, pages chan<- page) error {
	defer close(pages)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchers)
	for n := range total {
		if stop.Err() != nil || ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			text, err := fetch(ctx, fmt.Sprintf("%s/%d", site, n))
			if err != nil {
				return err
			}
			select {
			case pages <- page{n, text}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return group.Wait()
}

func countAll(pages <-chan page, counts chan<- count) {
	defer close(counts)
	var group sync.WaitGroup
	for range counters {
		group.Go(func() {
			for page := range pages {
				counts <- count{page.number, len(strings.Fields(page.text))}
			}
		})
	}
	group.Wait()
}

func run(site string, total int) error {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancelAll := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancelAll()

	pages, counts := make(chan page), make(chan count)
	failed := make(chan error, 1)
	go func() { failed <- fetchAll(ctx, stop, site, total, pages) }()
	go countAll(pages, counts)

	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	done, words := 0, 0
	for {
		select {
		case count, ok := <-counts:
			if !ok {
				fmt.Printf("%d words\n", words)
				return <-failed
			}
			done++
			words += count.words
			fmt.Printf("page %d: %d words\n", count.number, count.words)
		case <-ticker.C:
			fmt.Fprintf(os.Stderr, "%d of %d pages\n", done, total)
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gather SITE PAGES")
		os.Exit(2)
	}
	total, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = run(os.Args[1], total)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gather:", err)
		os.Exit(1)
	}
}
