// Package clocktest offers a clock that a test moves by hand.
package clocktest
