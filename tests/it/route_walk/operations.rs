//! The operations of `openapi/openapi.json`, as requests.

use std::collections::BTreeSet;

use base::types::Scope;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::places::project;
use crate::support::{Answer, Gateway};

/// An id that no session has.
pub(crate) const UNKNOWN: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";

/// The credential that an operation needs, from its `security`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// A key with this scope. `None` accepts any key.
    Key(Option<Scope>),
}

/// An operation with the ids of a request.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// The path of the document.
    pub(crate) template: String,
    pub(crate) path: String,
    pub(crate) needs: Needs,
    /// A ticket authenticates the operation too.
    pub(crate) ticket: bool,
    pub(crate) has_body: bool,
    /// The statuses that the document lists.
    pub(crate) statuses: BTreeSet<u16>,
}

/// All operations, with ids that name nothing.
pub(crate) fn operations() -> Vec<Operation> {
    operations_on(UNKNOWN, "nobody")
}

/// The ids of a request and a prompt are those of the first of a session.
pub(crate) fn operations_on(session: &str, agent: &str) -> Vec<Operation> {
    let file = project().join("openapi/openapi.json");
    let text = std::fs::read_to_string(file).expect("the document is committed");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let mut operations = Vec::new();
    for (template, item) in document["paths"].as_object().expect("paths") {
        let path = template
            .replace("{session}", session)
            .replace("{prompt}", "p1")
            .replace("{request}", "r1")
            .replace("{terminal}", "t1")
            .replace("{agent}", agent)
            .replace("{member}", "nobody")
            .replace("{grantee}", "user:nobody")
            .replace("{option}", "model")
            .replace("{path}", "folder/file.txt")
            .replace("{signIn}", "01938c5e-7a3b-7c4d-8e5f-ba9876543210")
            .replace("{toolCall}", "call_1")
            .replace("{agentTerminal}", "term_1")
            .replace("{key}", "000000000000")
            .replace("{webhook}", UNKNOWN)
            .replace("{task}", UNKNOWN)
            .replace("{delivery}", UNKNOWN);
        assert!(!path.contains('{'), "a new kind of path parameter: {path}");
        for (method, operation) in item.as_object().expect("operations") {
            let responses = operation["responses"]
                .as_object()
                .expect("responses")
                .keys();
            operations.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                needs: needs(&operation["security"]),
                ticket: ways(operation).any(|way| way.get("ticket").is_some()),
                has_body: operation["requestBody"].is_object(),
                statuses: responses
                    .map(|status| status.parse().expect("a status"))
                    .collect(),
                template: template.clone(),
                path: path.clone(),
            });
        }
    }
    assert!(
        operations.len() > 50,
        "only {} operations",
        operations.len()
    );
    operations
}

fn ways(operation: &Value) -> impl Iterator<Item = &Value> {
    operation["security"]
        .as_array()
        .expect("an operation has `security`")
        .iter()
}

fn needs(security: &Value) -> Needs {
    let key = security
        .as_array()
        .expect("an operation has `security`")
        .iter()
        .find_map(|way| way.get("key"));
    let Some(scopes) = key.and_then(Value::as_array) else {
        return Needs::Nothing;
    };
    assert!(
        scopes.len() <= 1,
        "an operation needs one scope: {scopes:?}"
    );
    Needs::Key(
        scopes
            .first()
            .map(|scope| serde_json::from_value(scope.clone()).expect("a scope")),
    )
}

impl Operation {
    /// Its path names an object.
    pub(crate) fn named(&self) -> bool {
        self.template.contains('{')
    }

    /// Its path names an object of a session or of an agent, beside the session or the agent.
    pub(crate) fn names_a_part(&self) -> bool {
        self.template.matches('{').count() > 1
    }

    /// A request without a credential, with a valid body.
    pub(crate) fn request(&self, gateway: &Gateway) -> RequestBuilder {
        self.request_with(gateway, "")
    }

    /// The same with this query.
    pub(crate) fn request_with(&self, gateway: &Gateway, query: &str) -> RequestBuilder {
        let url = format!("{}{}{query}", gateway.url, self.path);
        let request = gateway.http.request(self.method.clone(), url);
        if self.has_body {
            request.json(&self.body())
        } else {
            request
        }
    }

    /// A valid body for the operation.
    fn body(&self) -> Value {
        match self.template.rsplit('/').next().unwrap_or_default() {
            "{request}" if self.template.contains("/permissions/") => json!({ "optionId": "x" }),
            "{request}" if self.template.contains("/elicitations/") => {
                json!({ "action": "cancel" })
            }
            "{request}" => json!({ "result": {} }),
            "{grantee}" => json!({ "access": "read" }),
            "{option}" => json!({ "value": "x" }),
            "mode" => json!({ "modeId": "x" }),
            "auth" => json!({ "methodId": "x" }),
            "rpc" => json!({ "method": "_x" }),
            "prompts" | "stream" => json!({ "prompt": "hello" }),
            "sessions" => json!({ "agent": "nobody" }),
            "tickets" => json!({ "paths": ["/v1/events"] }),
            "tasks" => json!({ "agent": "nobody", "description": "hello" }),
            "broadcasts" => json!({ "type": "announcement", "content": "hello", "to": "all" }),
            "webhooks" => {
                json!({ "url": "https://hooks.example/", "events": ["prompt.completed"] })
            }
            _ => json!({}),
        }
    }

    /// Sends a request that is rejected with this problem. Returns the response.
    pub(crate) async fn refused(
        &self,
        request: RequestBuilder,
        status: StatusCode,
        code: &str,
    ) -> Answer {
        let answer = Answer::of(request).await;
        let what = format!("{} {}", self.method, self.path);
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        for (name, value) in [
            ("content-type", "application/problem+json"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{what}");
        }
        assert_eq!(answer.header("access-control-allow-origin"), None, "{what}");
        assert_eq!(answer.header("set-cookie"), None, "{what}");
        if self.method != Method::HEAD {
            assert_eq!(answer.body["code"], code, "{what}");
            assert_eq!(answer.body["status"], status.as_u16(), "{what}");
            assert_eq!(
                answer.body["type"],
                format!("/docs/problems#{code}"),
                "{what}"
            );
            assert_eq!(
                answer.body["instance"]
                    .as_str()
                    .and_then(|instance| instance.rsplit('#').next()),
                answer.header("x-request-id"),
                "{what}"
            );
        }
        answer
    }
}
