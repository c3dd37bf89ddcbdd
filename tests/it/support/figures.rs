//! What a test has measured, for people.

/// Shown with `--nocapture`, and when the test fails.
#[expect(clippy::print_stdout, reason = "the test runner keeps it until somebody wants to see it")]
pub(crate) fn figure(text: &str) {
    println!("{text}");
}
