// Package browser tests the console in Chromium: every page and control, what hostile pages can do, and
// whether everybody can use it (axe-core). It is a module of its own, for the libraries that drive a
// browser.
//
// It needs a program named chromium (or the one that CHROMIUM names), and npm. With PICTURES set to a
// directory, it writes pictures of every page there.
package browser
