//! The token budget of a task.

use serde_json::{Value, json};

use super::run;
use crate::support::Setup;

#[tokio::test]
async fn task_above_its_budget_is_cancelled() {
    let gateway = Setup::fake(&[]).start();
    let text = "usage used=10; usage used=101; hang";
    let task = run(
        &gateway,
        &json!({ "agent": "fake", "description": text, "tokenBudget": 100 }),
    )
    .await;
    assert_eq!(
        (&task["status"], &task["budgetEnforced"]),
        (&json!("failed"), &json!(true)),
        "{task}"
    );
    assert_eq!(task["result"]["error"]["code"], "budget_exceeded", "{task}");
    assert_eq!(task["result"]["tokensUsed"], 101, "{task}");
    assert_eq!(task["result"]["cancelCause"], "budget", "{task}");
}

#[tokio::test]
async fn task_within_its_budget_completes() {
    let gateway = Setup::fake(&[]).start();
    let text = "usage used=100; thought";
    let task = run(
        &gateway,
        &json!({ "agent": "fake", "description": text, "tokenBudget": 100 }),
    )
    .await;
    assert_eq!(
        (&task["status"], &task["budgetEnforced"]),
        (&json!("completed"), &json!(true)),
        "{task}"
    );
    assert_eq!(task["result"]["tokensUsed"], 100, "{task}");
}

#[tokio::test]
async fn budget_of_an_agent_without_usage_is_not_enforced() {
    let gateway = Setup::fake(&[]).start();
    let task = run(
        &gateway,
        &json!({ "agent": "fake", "description": "echo x", "tokenBudget": 1 }),
    )
    .await;
    assert_eq!(
        (&task["status"], &task["budgetEnforced"]),
        (&json!("completed"), &json!(false)),
        "{task}"
    );
    assert_eq!(task["result"]["tokensUsed"], Value::Null, "{task}");
    let task = run(
        &gateway,
        &json!({ "agent": "fake", "description": "echo x" }),
    )
    .await;
    assert_eq!(task["budgetEnforced"], Value::Null, "no budget");
}
