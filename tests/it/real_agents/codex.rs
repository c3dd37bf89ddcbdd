//! Codex, by its adapter to ACP, before a mock of its model.

use super::model::Model;
use super::real::{CODEX, Running};
use super::scenarios;
use crate::isolation::ground::{self, Machine, User, outside_tmp, run_by};
use crate::support::Setup;

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

#[tokio::test]
async fn codex_works_for_an_unprivileged_gateway_with_each_mechanism() {
    scenarios::unprivileged_gateway(&CODEX).await;
}

#[tokio::test]
async fn codex_uses_its_own_sandbox_in_the_namespaces_of_an_ordinary_user() {
    if !User::Unprivileged.can_run() {
        return;
    }
    let words = run_by(User::Unprivileged, Machine::Namespaces);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for level in ["private", "workspace"] {
        let setup = Setup::default().run_by(&words).below(outside_tmp());
        let model = Model::start().await;
        let setup = CODEX.configure(setup, &model, &format!("isolation = {level:?}\n"), &[]);
        let running = Running::new(&CODEX, ground::start(setup, User::Unprivileged), model);
        let session = running.session().await;
        // The sandbox permits changes in the folder of the session only, and asks for no permission.
        let call = r#"call exec_command {"cmd":"echo runs >inside.txt; cat inside.txt; touch \"$HOME/outside.txt\""}"#;
        let turn = running.turn(&session, call).await;
        let text = turn["text"].as_str().expect("a text");
        assert!(
            text.contains("runs") && text.contains("Read-only file system"),
            "{level}: {turn}"
        );
        assert!(
            running.cwd(&session).await.join("inside.txt").exists(),
            "{level}"
        );
    }
}
