//! Events and the messages that clients get.
