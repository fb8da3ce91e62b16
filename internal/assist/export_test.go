package assist

// Closed reports whether Close has begun.
func (h *Helpers) Closed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}
