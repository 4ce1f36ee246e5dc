// database/sql: insert, read, batch, and a transaction that is tried again when it was busy.
package main

import (
	"database/sql"
	"log"
	"math/rand"
	"os"
	"strings"
	"time"

	_ "github.com/tursodatabase/libsql-client-go/libsql"
)

// transaction runs work again and again while another transaction changed what it read.
func transaction(db *sql.DB, work func(*sql.Tx) error) error {
	for attempt := 1; ; attempt++ {
		tx, err := db.Begin()
		if err == nil {
			if err = work(tx); err == nil {
				err = tx.Commit()
			}
			tx.Rollback()
		}
		// The driver gives no code.
		if err == nil || attempt == 10 || !strings.Contains(err.Error(), "database is locked") {
			return err
		}
		time.Sleep(time.Duration(rand.Intn(10*attempt)) * time.Millisecond)
	}
}

func check(_ any, err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	db, err := sql.Open("libsql", os.Args[1])
	check(db, err)
	defer db.Close()
	// A batch: several statements in one request (over HTTP alone), each a transaction.
	check(db.Exec("DROP TABLE IF EXISTS account; CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)"))
	check(db.Exec("INSERT INTO account VALUES (1, ?, ?)", "ann", 100))
	// Between the two statements the program decides, so another transaction can come in between.
	check(nil, transaction(db, func(tx *sql.Tx) error {
		var balance int
		if err := tx.QueryRow("SELECT balance FROM account WHERE id = 1").Scan(&balance); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE account SET balance = ? WHERE id = 1", balance-10)
		return err
	}))
	var balance int
	check(nil, db.QueryRow("SELECT balance FROM account WHERE name = :name", sql.Named("name", "ann")).Scan(&balance))
	if balance != 90 {
		log.Fatalf("ann has %d", balance)
	}
}
