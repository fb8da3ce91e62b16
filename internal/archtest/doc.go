// Package archtest holds no code, only tests about the repository itself: that the
// engine stays self-contained, that its layers import downward, that files and
// time are reached through one door each, and that a reader finds his way.
// What a tool can check does not have to be remembered in reviews.
package archtest
