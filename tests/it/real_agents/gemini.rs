//! Gemini CLI before a mock of its model.

use super::real::GEMINI;
use super::scenarios;

#[tokio::test]
async fn gemini_runs_a_command_only_with_permission() {
    scenarios::permissions(&GEMINI).await;
}

#[tokio::test]
async fn gemini_is_cancelled_while_a_command_runs() {
    scenarios::cancel_while_a_tool_runs(&GEMINI).await;
}

#[tokio::test]
async fn gemini_starts_two_sessions_at_once_in_a_new_home() {
    scenarios::two_sessions_at_once_in_a_new_home(&GEMINI).await;
}
