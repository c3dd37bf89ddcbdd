//! Measurements of tests, for people.

/// Shown with `--nocapture`, and when the test fails.
#[expect(clippy::print_stdout, reason = "the test runner captures the output")]
pub(crate) fn figure(text: &str) {
    println!("{text}");
}
