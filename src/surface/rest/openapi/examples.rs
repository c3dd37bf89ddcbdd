//! Examples of the bodies of requests and responses, by operation.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::content::Content;
use utoipa::openapi::path::Operation;

/// The examples of one operation: its request body, and its response bodies by status.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Examples {
    request: Option<Value>,
    #[serde(default)]
    responses: HashMap<String, Value>,
}

/// The examples by operation id.
static EXAMPLES: LazyLock<HashMap<String, Examples>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("examples.json")).expect("`examples.json` matches the type")
});

/// Adds the examples of an operation to each of its media types.
pub(super) fn add_examples(id: &str, operation: &mut Operation) {
    let Some(examples) = EXAMPLES.get(id) else { return };
    if let (Some(example), Some(RefOr::T(body))) = (&examples.request, &mut operation.request_body) {
        body.content.values_mut().for_each(|content| set_example(content, example));
    }
    for (status, example) in &examples.responses {
        if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(status) {
            response.content.values_mut().for_each(|content| set_example(content, example));
        }
    }
}

fn set_example(content: &mut RefOr<Content>, example: &Value) {
    if let RefOr::T(content) = content {
        content.example = Some(example.clone());
    }
}
