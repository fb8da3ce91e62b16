// Package console serves web pages on which people watch a server and look at its rows.
//
//	console.go  the pages, who may see them, and what they may ask for
//	feed.go     what happened lately: background work and slow requests
//	heat.go     which keys were used, over the last half hour
//	assets      the pages: plain JavaScript modules, nothing is built; uplot draws lines (MIT, see its LICENSE)
//
// Everybody on the machine can load the pages. They ask for rows and figures with the token of a session. A
// session begins with a code that works once, which only the owner of the store can get: see Invite. The
// page keeps the token in its own storage, and sends it in a header. There is no cookie, so no other page
// of the browser can use the session, and none is sent to another port of the machine.
package console

import (
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// Prefix is where the paths of the console begin.
const Prefix = "/console/"

//go:embed assets
var assets embed.FS

const (
	// inviteTime is how long a code can be used, and idleTime how long a session lasts without a request.
	inviteTime, idleTime = 5 * time.Minute, 12 * time.Hour
	// maxTokens bounds codes, and sessions. The oldest make room.
	maxTokens = 16
	// answerTime is how long a browser may take to read an answer, if the operation sets no other time.
	answerTime = 10 * time.Second
)

// allowed are the operations of the administration port that a page may ask for. Keys of instances, and
// what deletes a table or an instance, are for the shell.
var allowed = []string{
	"GET /instances", "GET /figures", "GET /tables", "GET /table", "GET /files", "GET /partitions", "GET /streams", "GET /report", "POST /rows",
	"POST /change", "POST /compact", "PATCH /table", "POST /partitions", "DELETE /partitions",
}

// headers are those of every answer. A page loads nothing from elsewhere, runs the scripts of this package only,
// cannot turn text into markup (Trusted Types), and cannot be framed.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	mux   *http.ServeMux
	clock clock.Clock

	mu       sync.Mutex
	invited  tokens
	sessions tokens
}

// New returns a console that shows what is in the feed. api answers the operations of the administration port, without
// asking for its token.
func New(api http.Handler, feed *Feed) *Console {
	c := &Console{mux: http.NewServeMux(), clock: clock.System(), invited: tokens{limit: inviteTime}, sessions: tokens{limit: idleTime}}
	c.mux.HandleFunc("GET "+Prefix, serveAsset)
	c.mux.HandleFunc("POST "+Prefix+"session", c.begin)
	c.mux.HandleFunc("DELETE "+Prefix+"session", c.guarded(c.end))
	c.mux.HandleFunc("GET "+Prefix+"api/feed", c.guarded(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, feed.Recent()) }))
	c.mux.HandleFunc("GET "+Prefix+"api/heat", c.guarded(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		writeJSON(w, feed.picture(q.Get("instance")+"/"+q.Get("table")))
	}))
	for _, operation := range allowed {
		method, path, _ := strings.Cut(operation, " ")
		c.mux.HandleFunc(method+" "+Prefix+"api"+path, c.guarded(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = path
			api.ServeHTTP(w, r)
		}))
	}
	return c
}

// ServeHTTP answers requests below Prefix.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	// The port has few connections: a stranger keeps none, and takes answers soon.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // the recorder of a test has none
	w.Header().Set("Connection", "close")
	if !local(r) {
		http.Error(w, "this page is for 127.0.0.1, and for itself", http.StatusForbidden)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// local reports whether a request names an address of the machine, and comes from no page of another origin.
// A page elsewhere whose name resolves to 127.0.0.1 has its own name in Host. Browsers say in Sec-Fetch-Site where
// a request comes from; a link on any page may lead here.
func local(r *http.Request) bool {
	if from := r.Header.Get("Sec-Fetch-Site"); (from == "cross-site" || from == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document" {
		return false
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	origin := r.Header.Get("Origin")
	return (host == "127.0.0.1" || host == "localhost" || host == "::1") && (origin == "" || origin == "http://"+r.Host)
}

// Invite returns the path of a page at which a session begins. It works once, within five minutes.
func (c *Console) Invite() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Prefix + "#" + c.invited.add(c.clock.Elapsed())
}

// begin answers a code with the token of a new session.
func (c *Console) begin(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Code string `json:"code"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
	if err := decoder.Decode(&body); err != nil {
		http.Error(w, "no code", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	token, ok := "", c.invited.take(body.Code, c.clock.Elapsed())
	if ok {
		token = c.sessions.add(c.clock.Elapsed())
	}
	c.mu.Unlock()
	if !ok {
		http.Error(w, "the link was used, or is older than five minutes", http.StatusUnauthorized)
		return
	}
	writeJSON(w, map[string]string{"token": token})
}

// end ends the session that asks for it.
func (c *Console) end(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.sessions.take(bearer(r), c.clock.Elapsed())
	c.mu.Unlock()
	writeJSON(w, nil)
}

// End ends all sessions, and makes links that were not used useless.
func (c *Console) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.invited.list, c.sessions.list = nil, nil
}

func bearer(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// guarded answers requests of a session.
func (c *Console) guarded(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		ok := c.sessions.use(bearer(r), c.clock.Elapsed())
		c.mu.Unlock()
		if !ok {
			http.Error(w, "no session", http.StatusUnauthorized)
			return
		}
		w.Header().Del("Connection")
		f(w, r)
	}
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if name == "" {
		name = "index.html"
	}
	name = path.Join("assets", name)
	if info, err := fs.Stat(assets, name); err != nil || info.IsDir() {
		http.NotFound(w, r)
		return
	}
	http.ServeFileFS(w, r, assets, name)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the page has gone
}

// tokens are secrets that end a time after they were made or used.
type tokens struct {
	limit time.Duration
	list  []secret // the least recently used first
}

type secret struct {
	text string
	used time.Duration
}

// add makes a token.
func (t *tokens) add(now time.Duration) string {
	if len(t.list) == maxTokens {
		t.list = t.list[1:]
	}
	text := rand.Text()
	t.list = append(t.list, secret{text, now})
	return text
}

// take removes a token, and reports whether it was valid.
func (t *tokens) take(text string, now time.Duration) bool {
	found := -1
	for i := range t.list {
		if subtle.ConstantTimeCompare([]byte(t.list[i].text), []byte(text)) == 1 && now-t.list[i].used <= t.limit {
			found = i
		}
	}
	if found < 0 {
		return false
	}
	t.list = append(t.list[:found], t.list[found+1:]...)
	return true
}

// use is take, but keeps the token for its time from now on.
func (t *tokens) use(text string, now time.Duration) bool {
	if !t.take(text, now) {
		return false
	}
	t.list = append(t.list, secret{text, now})
	return true
}
