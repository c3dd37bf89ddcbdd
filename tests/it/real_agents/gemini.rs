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
async fn gemini_keeps_twenty_conversations_on_four_processes() {
    scenarios::more_conversations_than_processes(&GEMINI, 20, 4).await;
}

#[tokio::test]
async fn gemini_loads_after_the_idle_timeout() {
    scenarios::idle_timeout(&GEMINI).await;
}

#[tokio::test]
async fn gemini_loads_after_a_kill_of_the_agent() {
    scenarios::kill_of_the_agent(&GEMINI).await;
}

#[tokio::test]
async fn gemini_loads_after_a_kill_of_the_gateway() {
    scenarios::kill_of_the_gateway(&GEMINI).await;
}

#[tokio::test]
async fn gemini_starts_two_sessions_at_once_in_a_new_home() {
    scenarios::two_sessions_at_once_in_a_new_home(&GEMINI).await;
}

#[tokio::test]
async fn gemini_has_a_conversation_adopted() {
    scenarios::adopt(&GEMINI, "GEMINI_CLI_HOME").await;
}

#[tokio::test]
async fn gemini_reports_a_failure_of_its_model() {
    scenarios::transient_failure_of_the_model(&GEMINI).await;
}
