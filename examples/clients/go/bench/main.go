// What `monolite bench server` runs for libsql-client-go:
// bench URL read|update|interactive CLIENTS SECONDS THINK_MS ACCOUNTS
package main

import (
	"database/sql"
	"encoding/json"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "github.com/tursodatabase/libsql-client-go/libsql"
)

type report struct {
	Latencies  []int64 `json:"latencies_us"`
	Retries    int     `json:"retries"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

func number(at int) float64 {
	value, err := strconv.ParseFloat(os.Args[at], 64)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func interactive(db *sql.DB, think time.Duration, account int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var balance int
	if err = tx.QueryRow("SELECT balance FROM account WHERE id = ?", account).Scan(&balance); err != nil {
		return err
	}
	time.Sleep(think)
	if _, err = tx.Exec("UPDATE account SET balance = ? WHERE id = ?", balance+1, account); err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	db, err := sql.Open("libsql", os.Args[1])
	check(err)
	clients, accounts := int(number(3)), int(number(6))
	think := time.Duration(number(5)) * time.Millisecond
	db.SetMaxIdleConns(clients)
	run := map[string]func(int) error{
		"interactive": func(account int) error { return interactive(db, think, account) },
		"read": func(account int) error {
			var balance int
			return db.QueryRow("SELECT balance FROM account WHERE id = ?", account).Scan(&balance)
		},
		"update": func(account int) error {
			_, err := db.Exec("UPDATE account SET balance = balance + 1 WHERE id = ?", account)
			return err
		},
	}[os.Args[2]]
	var all report
	var lock sync.Mutex
	var group sync.WaitGroup
	begin, cpu := time.Now(), cpuSeconds()
	end := begin.Add(time.Duration(number(4) * float64(time.Second)))
	for i := 0; i < clients; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			var own report
			for time.Now().Before(end) {
				start, account := time.Now(), 1+rand.Intn(accounts)
				for err := run(account); err != nil; err = run(account) {
					// The driver gives no code.
					if !strings.Contains(err.Error(), "database is locked") {
						log.Fatal(err)
					}
					own.Retries++
				}
				own.Latencies = append(own.Latencies, time.Since(start).Microseconds())
			}
			lock.Lock()
			defer lock.Unlock()
			all.Latencies = append(all.Latencies, own.Latencies...)
			all.Retries += own.Retries
		}()
	}
	group.Wait()
	all.Seconds, all.CPUSeconds = time.Since(begin).Seconds(), cpuSeconds()-cpu
	check(json.NewEncoder(os.Stdout).Encode(all))
}
