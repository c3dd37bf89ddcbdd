//! Agents that others wrote, through REST and SSE.

use crate::support::places::project;

mod chat_clients;
mod claude;
mod claude_code;
mod codex;
mod examples;
mod gemini;
mod kimi;
mod model;
mod offers;
mod one_key;
mod real;
mod scenarios;

/// The mock of the model, the program of the Claude Code CLI, and its variables.
pub(crate) async fn claude_code_before_a_mock()
-> (model::Model, String, Vec<(&'static str, String)>) {
    let model = model::Model::start().await;
    let (program, variables) = real::CLAUDE_CODE.standalone(&model);
    (model, program, variables)
}

/// A file that the tests' set-up brings.
pub(crate) fn file(name: &str) -> String {
    let path = project().join("tests/agents").join(name);
    assert!(
        path.exists(),
        "{} is missing: run `scripts/test agents`, which sets up the agents",
        path.display()
    );
    path.to_str().expect("UTF-8").to_owned()
}
