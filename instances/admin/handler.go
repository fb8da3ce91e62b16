// Package admin lets one process change the instances of a home that another process has open:
// the server opens a door, the command connects to it. The door is a port of the loopback
// interface. A client needs a token from a file that only the owner of the home can read.
//
//	handler.go  what the door offers, as HTTP with JSON
//	door.go     the listener and the file that names it
//	client.go   the other side
//
//	GET    /instances                          all of them
//	POST   /instances                          {"name":...,"type":...}
//	DELETE /instances?instance=I&tables=yes    also if it has tables
//	POST   /keys?instance=I                    a new access key
//	DELETE /keys?instance=I&id=K
//	POST   /console                            the path of a page, for one browser: see package console
//	DELETE /console                            ends the sessions of all pages
//	GET    /figures                            flagstone.Metrics of each store
//	GET    /tables?instance=I                  all of an instance
//	POST   /tables?instance=I                  a new one, of instances.NewTable
//	GET    /table?instance=I&table=T
//	PATCH  /table?instance=I&table=T           changes it by instances.TableChange
//	DELETE /table?instance=I&table=T           with its rows
//	POST   /flush?instance=I&table=T           writes what it has in memory to table files
//	POST   /compact?instance=I&table=T         merges all its files
//	GET    /files?instance=I&table=T           its table files
//	POST   /rows?instance=I                    a page of an instances.Query
//	POST   /change?instance=I                  an instances.Change of a row
//	GET    /partitions?instance=I&table=T      of a table
//	POST   /partitions?instance=I&table=T&at=V splits
//	DELETE /partitions?instance=I&table=T&at=V merges
//	GET    /streams?instance=I&table=T         the stream of a table, its tunnels and its readers
//	GET    /report?instance=I&table=T&rows=N   a report on its primary key
//	POST   /arrivals?within=D&instance=I&table=T makes a table of the store in a directory of instances.ArrivalsDir
//	POST   /checkpoint                         its directory, which goes when the client closes the connection
//	PUT    /log?limit=N                        keeps the logs of the stores, up to N bytes of each; 0 ends that
//	POST   /log                                what they keep, as a list of instances.StoreLog
//	DELETE /log                                gives up what an instances.StoreLog names
//	POST   /check?rate=N                       verifies the files until the client closes the connection: a line of JSON for each step
//
// The pages of package console are below /console/. They need no token, and do most of these operations in a session.
//
// Names are in queries and bodies, never in paths: HTTP cleans paths, so a name like ".." would
// make another request.
package admin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/console"
	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/ots"
)

// Admin is the set of operations on a home, local (*instances.Home) or remote (*Client).
type Admin interface {
	List(ctx context.Context) ([]instances.Info, error)
	Create(ctx context.Context, name string, kind ots.InstanceType) error
	Delete(ctx context.Context, name string, withTables bool) error
	AddKey(ctx context.Context, instance string) (instances.Key, error)
	RemoveKey(ctx context.Context, instance, id string) error
	KeyReport(ctx context.Context, instance, table string, rows int) (*keydesign.Report, error)
	Figures(ctx context.Context) (map[ots.InstanceType]flagstone.Metrics, error)
	Tables(ctx context.Context, instance string) ([]instances.Table, error)
	Table(ctx context.Context, instance, table string) (*instances.Table, error)
	CreateTable(ctx context.Context, instance string, t *instances.NewTable) error
	AlterTable(ctx context.Context, instance, table string, c *instances.TableChange) error
	DropTable(ctx context.Context, instance, table string) error
	FlushTable(ctx context.Context, instance, table string) error
	CompactTable(ctx context.Context, instance, table string) error
	Files(ctx context.Context, instance, table string) ([]instances.File, error)
	Rows(ctx context.Context, instance string, q *instances.Query) (*instances.Page, error)
	Change(ctx context.Context, instance string, c *instances.Change) ([]instances.KeyValue, error)
	Partitions(ctx context.Context, instance, table string) ([]instances.Partition, error)
	Split(ctx context.Context, instance, table, at string) error
	Merge(ctx context.Context, instance, table, at string) error
	Streams(ctx context.Context, instance, table string) (*instances.Streams, error)
	Checkpoint(ctx context.Context) (*instances.Checkpoint, error)
	KeepLogs(ctx context.Context, limit int64) error
	KeptLogs(ctx context.Context) ([]instances.StoreLog, error)
	LogShipped(ctx context.Context, log instances.StoreLog) error
	TakeTable(ctx context.Context, within, instance, table string) error
	Check(ctx context.Context, bytesPerSecond int64, tell func(instances.CheckStep)) error
	Close() error
}

// kinds are the errors that a client can distinguish, by their name on the wire.
var kinds = []struct {
	name   string
	status int
	err    error
}{
	{"not-found", http.StatusNotFound, instances.ErrNotFound},
	{"exists", http.StatusConflict, instances.ErrExists},
	{"quota", http.StatusForbidden, instances.ErrQuota},
	{"invalid", http.StatusBadRequest, instances.ErrInvalid},
	{"has-tables", http.StatusConflict, instances.ErrHasTables},
	{"refused", http.StatusBadRequest, instances.ErrRefused},
}

// problem is the body of a refusal.
type problem struct {
	Kind  string `json:"kind,omitempty"`
	Error string `json:"error"`
}

// createBody is the body of a request for a new instance.
type createBody struct {
	Name string           `json:"name"`
	Type ots.InstanceType `json:"type"`
}

// newHandler serves a home to requests with the token, and the console to others. When stopping ends, so do requests
// that wait for their client.
func newHandler(stopping context.Context, home Admin, feed *console.Feed, token string) http.Handler {
	mux := newMux(home)
	pages := console.New(mux, feed)
	guarded := http.NewServeMux()
	guarded.Handle("/", mux)
	guarded.HandleFunc("POST /console", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(*http.Request) (any, error) { return pages.Invite(), nil })
	})
	guarded.HandleFunc("DELETE /console", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(*http.Request) (any, error) { pages.End(); return nil, nil })
	})
	guarded.HandleFunc("POST /checkpoint", func(w http.ResponseWriter, r *http.Request) { holdCheckpoint(stopping, home, w, r) })
	handleLogs(guarded, home)
	guarded.HandleFunc("POST /check", func(w http.ResponseWriter, r *http.Request) { check(stopping, home, w, r) })
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, console.Prefix) {
			pages.ServeHTTP(w, r)
			return
		}
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("Connection", "close") // there are only maxConnections
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// holdCheckpoint makes a checkpoint, and holds it until the client closes the connection or dies, or the server stops.
func holdCheckpoint(stopping context.Context, home Admin, w http.ResponseWriter, r *http.Request) {
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Time{}); err != nil { // the deadline would end the wait
		answer(w, r, func(*http.Request) (any, error) { return nil, err })
		return
	}
	made, err := home.Checkpoint(r.Context())
	answer(w, r, func(*http.Request) (any, error) {
		if err != nil {
			return nil, err
		}
		return made.Within, nil
	})
	if err != nil {
		return
	}
	defer func() { _ = made.Release() }() // it logs its error
	if err := connection.Flush(); err != nil {
		return
	}
	select {
	case <-r.Context().Done():
	case <-stopping.Done():
	}
}

// handleLogs serves the logs of a home's stores.
func handleLogs(mux *http.ServeMux, home Admin) {
	mux.HandleFunc("PUT /log", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(r *http.Request) (any, error) {
			limit, err := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
			if err != nil {
				return nil, errors.Join(instances.ErrInvalid, err)
			}
			return nil, home.KeepLogs(r.Context(), limit)
		})
	})
	mux.HandleFunc("POST /log", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(r *http.Request) (any, error) { return home.KeptLogs(r.Context()) })
	})
	mux.HandleFunc("DELETE /log", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		answer(w, r, func(r *http.Request) (any, error) {
			var log instances.StoreLog
			if err := decode(r, &log); err != nil {
				return nil, err
			}
			return nil, home.LogShipped(r.Context(), log)
		})
	})
}

// checkLine is a line of the answer to a check: a step, or its end.
type checkLine struct {
	*instances.CheckStep
	Over   bool     `json:"over,omitempty"`
	Failed *problem `json:"failed,omitempty"` // why it ended early
}

// check checks the stores until the client closes the connection or dies, or the server stops.
func check(stopping context.Context, home Admin, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(stopping, cancel)()
	connection := http.NewResponseController(w)
	lines := json.NewEncoder(w)
	send := func(line checkLine) {
		_ = connection.SetWriteDeadline(time.Now().Add(answerTime))
		if err := errors.Join(lines.Encode(line), connection.Flush()); err != nil {
			cancel()
		}
	}
	begun := false
	rate, err := strconv.ParseInt(r.URL.Query().Get("rate"), 10, 64)
	if err != nil {
		err = errors.Join(instances.ErrInvalid, err)
	} else {
		err = home.Check(ctx, rate, func(step instances.CheckStep) {
			begun = true
			send(checkLine{CheckStep: &step})
		})
	}
	switch {
	case !begun && err != nil:
		answer(w, r, func(*http.Request) (any, error) { return nil, err })
	case err != nil:
		send(checkLine{Over: true, Failed: &problem{Error: err.Error()}})
	default:
		send(checkLine{Over: true})
	}
}

// newMux serves a home, to everybody.
func newMux(home Admin) *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
			answer(w, r, f)
		})
	}
	handle("GET /instances", func(r *http.Request) (any, error) { return home.List(r.Context()) })
	handle("POST /instances", func(r *http.Request) (any, error) {
		var b createBody
		if err := decode(r, &b); err != nil {
			return nil, err
		}
		return nil, home.Create(r.Context(), b.Name, b.Type)
	})
	handle("DELETE /instances", func(r *http.Request) (any, error) {
		// Finish the deletion even if the client goes away.
		ctx, q := context.WithoutCancel(r.Context()), r.URL.Query()
		return nil, home.Delete(ctx, q.Get("instance"), q.Get("tables") == "yes")
	})
	handle("POST /keys", func(r *http.Request) (any, error) {
		return home.AddKey(r.Context(), r.URL.Query().Get("instance"))
	})
	handle("DELETE /keys", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.RemoveKey(r.Context(), q.Get("instance"), q.Get("id"))
	})
	handle("GET /figures", func(r *http.Request) (any, error) { return home.Figures(r.Context()) })
	handle("GET /tables", func(r *http.Request) (any, error) { return home.Tables(r.Context(), r.URL.Query().Get("instance")) })
	handle("POST /tables", func(r *http.Request) (any, error) {
		var t instances.NewTable
		if err := decode(r, &t); err != nil {
			return nil, err
		}
		return nil, home.CreateTable(r.Context(), r.URL.Query().Get("instance"), &t)
	})
	handle("GET /table", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return home.Table(r.Context(), q.Get("instance"), q.Get("table"))
	})
	handle("PATCH /table", func(r *http.Request) (any, error) {
		var c instances.TableChange
		if err := decode(r, &c); err != nil {
			return nil, err
		}
		q := r.URL.Query()
		return nil, home.AlterTable(r.Context(), q.Get("instance"), q.Get("table"), &c)
	})
	handle("DELETE /table", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.DropTable(context.WithoutCancel(r.Context()), q.Get("instance"), q.Get("table"))
	})
	handle("POST /flush", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.FlushTable(r.Context(), q.Get("instance"), q.Get("table"))
	})
	handle("POST /compact", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.CompactTable(r.Context(), q.Get("instance"), q.Get("table"))
	})
	rowSlots := make(chan struct{}, maxRowRequests)
	handleRows := func(pattern string, body int64, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			select {
			case rowSlots <- struct{}{}:
				defer func() { <-rowSlots }()
			case <-time.After(slotWait):
				http.Error(w, `{"error": "two requests for rows are being answered; try again"}`, http.StatusServiceUnavailable)
				return
			}
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime))
			r.Body = http.MaxBytesReader(w, r.Body, body)
			answer(w, r, f)
		})
	}
	handleRows("GET /files", 0, func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return home.Files(r.Context(), q.Get("instance"), q.Get("table"))
	})
	handleRows("POST /rows", 64<<10, func(r *http.Request) (any, error) {
		var query instances.Query
		if err := decode(r, &query); err != nil {
			return nil, err
		}
		return home.Rows(r.Context(), r.URL.Query().Get("instance"), &query)
	})
	handleRows("POST /change", maxChange, func(r *http.Request) (any, error) {
		var c instances.Change
		if err := decode(r, &c); err != nil {
			return nil, err
		}
		return home.Change(r.Context(), r.URL.Query().Get("instance"), &c)
	})
	handle("POST /arrivals", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.TakeTable(r.Context(), q.Get("within"), q.Get("instance"), q.Get("table"))
	})
	handle("GET /partitions", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return home.Partitions(r.Context(), q.Get("instance"), q.Get("table"))
	})
	handle("POST /partitions", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.Split(r.Context(), q.Get("instance"), q.Get("table"), q.Get("at"))
	})
	handle("DELETE /partitions", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return nil, home.Merge(r.Context(), q.Get("instance"), q.Get("table"), q.Get("at"))
	})
	handle("GET /streams", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return home.Streams(r.Context(), q.Get("instance"), q.Get("table"))
	})
	handle("GET /report", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		rows, err := strconv.Atoi(q.Get("rows"))
		if err != nil {
			return nil, errors.Join(instances.ErrInvalid, err)
		}
		return home.KeyReport(r.Context(), q.Get("instance"), q.Get("table"), rows)
	})
	return mux
}

const (
	// maxChange bounds the body of a change, whose row may have 4 MiB: twice as much for bytes in hexadecimal.
	maxChange = 12 << 20
	// maxRowRequests bounds the requests that hold rows in memory until they are answered.
	maxRowRequests = 2
	// slotWait is how long such a request waits for the others, and readTime how long its body may take then.
	slotWait, readTime = 5 * time.Second, 10 * time.Second
	// answerTime is how long a client may take to read an answer.
	answerTime = time.Minute
)

// decode reads the body of a request. Errors match ErrInvalid.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%w: the body of the request: %w", instances.ErrInvalid, err)
	}
	return nil
}

// answer writes a result or a refusal.
func answer(w http.ResponseWriter, r *http.Request, f func(*http.Request) (any, error)) {
	result, err := f(r)
	status := http.StatusOK
	if err != nil {
		p := problem{Error: err.Error()}
		status = http.StatusInternalServerError
		for _, k := range kinds {
			if errors.Is(err, k.err) {
				p.Kind, status = k.name, k.status
				break
			}
		}
		result = p
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // the recorder of a test has none
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(result) // an error means that the client has gone
}
