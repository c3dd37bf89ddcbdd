//! What a session's agent and its clients may touch of the file system, and the terminals that it runs there.
//!
//! It owns the handles of a session's root folders, every path that is resolved beneath them, and the output of
//! terminals. It does not know what a session is, and nothing outside the roots is within its reach.
