//! Codex, by its adapter to ACP, before a mock of its model.

use super::real::CODEX;
use super::scenarios;

#[tokio::test]
async fn codex_runs_a_command_only_with_permission() {
    scenarios::permissions(&CODEX).await;
}

#[tokio::test]
async fn codex_is_cancelled_while_a_command_runs() {
    scenarios::cancel_while_a_tool_runs(&CODEX).await;
}

#[tokio::test]
async fn codex_keeps_twenty_conversations_on_four_processes() {
    scenarios::more_conversations_than_processes(&CODEX, 20, 4).await;
}

#[tokio::test]
async fn codex_resumes_after_the_idle_timeout() {
    scenarios::idle_timeout(&CODEX).await;
}

#[tokio::test]
async fn codex_resumes_after_a_kill_of_the_agent() {
    scenarios::kill_of_the_agent(&CODEX).await;
}

#[tokio::test]
async fn codex_resumes_after_a_kill_of_the_gateway() {
    scenarios::kill_of_the_gateway(&CODEX).await;
}

#[tokio::test]
async fn codex_starts_two_sessions_at_once_in_a_new_home() {
    scenarios::two_sessions_at_once_in_a_new_home(&CODEX).await;
}

#[tokio::test]
async fn codex_forks_a_conversation() {
    scenarios::fork(&CODEX).await;
}

#[tokio::test]
async fn codex_has_a_conversation_adopted() {
    scenarios::adopt(&CODEX, "CODEX_HOME").await;
}

#[tokio::test]
async fn codex_works_at_the_isolation_level_workspace() {
    scenarios::workspace_isolation(&CODEX).await;
}
