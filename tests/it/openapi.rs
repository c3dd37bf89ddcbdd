//! `openapi/openapi.json` is what the code says, and it holds together.

use std::collections::BTreeSet;

use acp_gateway::api::ProblemCode;
use acp_gateway::http;
use serde_json::Value;

fn document() -> Value {
    serde_json::from_str(&http::document_json()).expect("the document is JSON")
}

#[test]
fn the_committed_document_is_the_codes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let committed = std::fs::read_to_string(path).expect("it is committed");
    assert!(
        committed == http::document_json(),
        "the routes have changed; rewrite the document: cargo run -- openapi > openapi/openapi.json"
    );
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_schema_that_is_named_is_there() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 40, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("references stay inside the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn every_problem_that_an_answer_can_be_is_documented() {
    let text = http::document_json();
    for code in ProblemCode::ALL {
        let in_events_only = matches!(
            code,
            ProblemCode::Interrupted
                | ProblemCode::CancelTimeout
                | ProblemCode::KeyRevoked
                | ProblemCode::PromptExpired
        );
        // A method that a path does not have is no operation.
        let of_no_operation = *code == ProblemCode::MethodNotAllowed;
        let named = text.contains(&format!("`{}`", code.as_str()));
        assert!(named || in_events_only || of_no_operation, "{}", code.as_str());
    }
}

fn is_ticket(way: &Value) -> bool {
    way["ticket"].is_array()
}

#[test]
fn every_operation_needs_the_key_but_the_probes() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 20);
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            let open = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(open, matches!(path.as_str(), "/livez" | "/readyz"), "{method} {path}");
            let ticket = operation["security"].as_array().is_some_and(|ways| ways.iter().any(is_ticket));
            let streams = path.ends_with("/events") || path.ends_with("/auth/terminals/{signIn}");
            assert_eq!(ticket, streams, "{method} {path}");
            for parameter in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                let declared = operation["parameters"].as_array().expect("parameters");
                let found = declared.iter().any(|p| p["name"] == parameter && p["in"] == "path");
                assert!(found, "{method} {path}: {parameter}");
            }
        }
    }
}
