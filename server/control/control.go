// Package control lets tests change a running server over HTTP: set its clock, and inject
// faults. It is for servers that hold only test data. Requests are not signed, so the server
// accepts them only from this machine, addressed to a loopback address.
//
//	GET    /flagstone/test/clock
//	POST   /flagstone/test/clock    {"advance":"26h"} or {"set":"2030-01-01T00:00:00Z"} or {"reset":true}
//	GET    /flagstone/test/faults
//	POST   /flagstone/test/faults   a rule, see docs/testing.md
//	DELETE /flagstone/test/faults
//	POST   /flagstone/test/reset    drops all tables, sets the clock right, ends the faults
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/server/faults"
)

// Prefix is the common prefix of this package's paths.
const Prefix = "/flagstone/test/"

// Handler serves the paths of its arguments that are not nil, and refuses the others with a
// hint. reset drops all tables. It must be mounted at Prefix.
func Handler(wall *clock.Shifted, injector *faults.Injector, reset func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Prefix, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, errors.New("there is no such path; see docs/testing.md"))
	})
	off := func(flag string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			refuse(w, http.StatusForbidden, fmt.Errorf("this is off; start the server with %s", flag))
		}
	}
	if wall == nil {
		mux.HandleFunc(Prefix+"clock", off("--test-clock"))
	} else {
		c := clockControl{wall}
		mux.HandleFunc(Prefix+"clock", only("GET, POST"))
		mux.HandleFunc("GET "+Prefix+"clock", c.get)
		mux.HandleFunc("POST "+Prefix+"clock", c.post)
	}
	if injector == nil {
		mux.HandleFunc(Prefix+"faults", off("--test-faults"))
	} else {
		f := faultControl{injector}
		mux.HandleFunc(Prefix+"faults", only("GET, POST, DELETE"))
		mux.HandleFunc("GET "+Prefix+"faults", f.get)
		mux.HandleFunc("POST "+Prefix+"faults", f.post)
		mux.HandleFunc("DELETE "+Prefix+"faults", f.delete)
	}
	if reset == nil {
		mux.HandleFunc(Prefix+"reset", off("--memory"))
	} else {
		mux.HandleFunc(Prefix+"reset", only("POST"))
		mux.HandleFunc("POST "+Prefix+"reset", func(w http.ResponseWriter, r *http.Request) {
			if injector != nil {
				injector.Clear()
			}
			if wall != nil {
				wall.Reset()
			}
			if err := reset(r.Context()); err != nil {
				refuse(w, http.StatusInternalServerError, err)
				return
			}
			answer(w, http.StatusOK, struct{}{})
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r) {
			refuse(w, http.StatusForbidden, errors.New("tests may only do this from the machine of the server, by its loopback address"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		mux.ServeHTTP(w, r)
	})
}

// only refuses the other methods of a path.
func only(methods string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", methods)
		refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("%s is none of %s; see docs/testing.md", r.Method, methods))
	}
}

// local reports whether a request comes from this machine and is addressed to it. A browser
// sends the host, or the origin, of a foreign page that makes the request.
func local(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() || r.Header.Get("Origin") != "" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	to, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && to.IsLoopback()
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, map[string]string{"error": err.Error()})
}

// read decodes a body into v. It refuses unknown fields: such a mistake in a test would stay
// unnoticed.
func read(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if errors.Is(err, io.EOF) {
		return errors.New("the body is empty, a JSON object is wanted; see docs/testing.md")
	}
	return err
}

type clockControl struct{ wall *clock.Shifted }

// clockState is the state of the clock.
type clockState struct {
	Now    time.Time `json:"now"`
	Millis int64     `json:"now_millis"`
	Ahead  string    `json:"ahead"` // of the machine's clock
}

func (c clockControl) get(w http.ResponseWriter, _ *http.Request) {
	millis := c.wall.NowMillis()
	answer(w, http.StatusOK, clockState{Now: time.UnixMilli(millis).UTC(), Millis: millis, Ahead: c.wall.Offset().String()})
}

// earliest and latest bound the clock: versions are not negative, and a store never forgets a
// time that was far ahead.
var (
	earliest = time.Unix(0, 0).UTC()
	latest   = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// AllowedTime returns an error for a time that the clock cannot show.
func AllowedTime(t time.Time) error {
	if t.Before(earliest) || t.After(latest) {
		return fmt.Errorf("the clock shows times from %s to %s, not %s",
			earliest.Format(time.DateOnly), latest.Format(time.DateOnly), t.UTC().Format(time.DateOnly))
	}
	return nil
}

func (c clockControl) post(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Advance string     `json:"advance"`
		Set     *time.Time `json:"set"`
		Reset   bool       `json:"reset"`
	}
	err := read(r, &body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	given := 0
	for _, is := range []bool{body.Advance != "", body.Set != nil, body.Reset} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		err = errors.New(`give one of "advance", "set" and "reset"`)
	case body.Reset:
		c.wall.Reset()
	case body.Set != nil:
		if err = AllowedTime(*body.Set); err == nil {
			c.wall.SetWall(body.Set.UnixMilli())
		}
	default:
		var d time.Duration
		if d, err = time.ParseDuration(body.Advance); err == nil {
			err = AllowedTime(time.UnixMilli(c.wall.NowMillis()).Add(d))
		}
		if err == nil {
			c.wall.Advance(d)
		}
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	c.get(w, r)
}

type faultControl struct{ injector *faults.Injector }

// fault is a rule in JSON.
type fault struct {
	Operation string   `json:"operation,omitempty"`
	Instance  string   `json:"instance,omitempty"`
	Table     string   `json:"table,omitempty"`
	Code      string   `json:"code,omitempty"`
	Rate      *float64 `json:"rate,omitempty"` // 1 if absent
	Times     int      `json:"times,omitempty"`
	Applied   bool     `json:"applied,omitempty"`
	Rows      bool     `json:"rows,omitempty"`
	Delay     string   `json:"delay,omitempty"`
	// Counters in answers; ignored in requests.
	Matched *int `json:"matched,omitempty"`
	Hit     *int `json:"hit,omitempty"`
}

func (f faultControl) get(w http.ResponseWriter, _ *http.Request) {
	list := []fault{}
	for _, s := range f.injector.List() {
		shown := fault{
			Operation: s.Operation, Instance: s.Instance, Table: s.Table, Code: s.Code, Rate: &s.Rate, Times: s.Times,
			Applied: s.Applied, Rows: s.Rows, Matched: &s.Matched, Hit: &s.Hit,
		}
		if s.Delay != 0 {
			shown.Delay = s.Delay.String()
		}
		list = append(list, shown)
	}
	answer(w, http.StatusOK, list)
}

func (f faultControl) post(w http.ResponseWriter, r *http.Request) {
	var body fault
	if err := read(r, &body); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	rule := faults.Rule{
		Operation: body.Operation, Instance: body.Instance, Table: body.Table, Code: body.Code,
		Rate: 1, Times: body.Times, Applied: body.Applied, Rows: body.Rows,
	}
	if body.Rate != nil {
		rule.Rate = *body.Rate
	}
	var err error
	if body.Delay != "" {
		rule.Delay, err = time.ParseDuration(body.Delay)
	}
	if err == nil {
		err = f.injector.Add(rule)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	f.get(w, r)
}

func (f faultControl) delete(w http.ResponseWriter, r *http.Request) {
	f.injector.Clear()
	f.get(w, r)
}
