//! The OpenAPI document: the operations that the routes declare, completed with the documentation in
//! `document.json`.
//!
//! Code generators constrain the document. `scripts/clients` generates clients, compiles them and runs them.
//!
//! - A generator maps a status to one type. Therefore, each stream of Server-Sent Events has its own path,
//!   `<path>/stream`.
//! - The schema of a stream is the schema of its `data`. `itemSchema` of OpenAPI 3.2 is more exact, but no tested
//!   generator supports it.
//! - Unions need a discriminator, and items of arrays need a named schema. `openapi-python-client` omits items that
//!   are anonymous combinations.
//! - A raw ACP value permits any member. For a plain `type: object`, `openapi-typescript` generates an object without
//!   members.

use std::sync::LazyLock;

use http::HeaderValue;
use sha2::{Digest, Sha256};
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

use self::documentation::Documentation;
use super::routes::api_routes;
use crate::surface::http::etag;
use base::schema::JSON_SCHEMAS;
use base::types::{AgentName, PromptId, RequestId, SessionId, TerminalId};
use events::api::{Problem, PublicPath};
use events::event::{AuditLogEvent, SessionEvent};

mod documentation;
mod open_responses;

pub(super) struct Document {
    pub(super) json: String,
    pub(super) etag: HeaderValue,
}

/// The document is built on the first request, because it would dominate the start time and needs megabytes.
pub(super) fn served_document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
        let json = document_json();
        let etag = etag(&Sha256::digest(&json).into());
        Document { json, etag }
    });
    &DOCUMENT
}

/// The document for clients of the public URL: its server and the links to its documentation are below the path of this URL.
pub(super) fn document_below(public: &PublicPath) -> Document {
    let Document { json, etag } = served_document();
    let docs = format!("\"{}", public.join("/docs/"));
    let server = format!("\"url\": \"{}\"", public.join("/"));
    let json = json.replace("\"../docs/", &docs);
    let json = json.replacen("\"url\": \"/\"", &server, 1);
    // The path does not change while the gateway runs, and another document has another hash.
    let path = Sha256::digest(public.join(""));
    let hash = Sha256::new()
        .chain_update(etag.as_bytes())
        .chain_update(path);
    Document {
        json,
        etag: self::etag(&hash.finalize().into()),
    }
}

pub fn document_json() -> String {
    let mut document = serde_json::to_value(document()).expect("the document has only string keys");
    open_responses::open_raw_objects(&mut document["components"]["schemas"]);
    open_responses::open_responses(&mut document);
    format!("{document:#}\n")
}

/// The schemas that no operation names directly.
#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(
    SessionEvent,
    AuditLogEvent,
    Problem,
    SessionId,
    PromptId,
    RequestId,
    TerminalId,
    AgentName
)))]
struct SharedSchemas;

fn document() -> OpenApi {
    let documentation = Documentation::load();
    let mut document = SharedSchemas::openapi();
    document.merge(api_routes().into_openapi());
    // The router marks a wildcard parameter with `*`, which OpenAPI does not know.
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
            ("patch", &mut item.patch),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation {
                documentation.complete_operation(path, method, operation);
            }
        }
    }
    let components = document.components.get_or_insert_default();
    components.schemas.extend(JSON_SCHEMAS.clone());
    documentation.complete_document(&mut document);
    document
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn parse(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    fn keys(object: &Value) -> BTreeSet<String> {
        object.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn documentation_has_no_unused_entries() {
        let documentation = parse(include_str!("document.json"));
        let document = parse(&document_json());
        let paths = document["paths"].as_object().unwrap();
        let ids = |item: &Value| -> Vec<String> {
            let operations = item.as_object().unwrap().values();
            operations
                .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
                .collect()
        };
        let operations: BTreeSet<String> = paths.values().flat_map(ids).collect();
        let documented: Vec<&Value> = documentation["tags"].as_array().unwrap().iter().collect();
        let documented = documented
            .iter()
            .flat_map(|tag| tag["operations"].as_object().unwrap());
        assert_eq!(
            documented
                .clone()
                .map(|(id, _)| id.clone())
                .collect::<BTreeSet<_>>(),
            operations
        );
        let in_path = paths.keys().flat_map(|path| path.split('/'));
        let in_path = in_path.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let others = documented
            .filter_map(|(_, docs)| docs["parameters"].as_array())
            .flatten();
        let used = in_path
            .chain(others.map(|key| key.as_str().unwrap()))
            .map(str::to_owned);
        assert_eq!(
            used.collect::<BTreeSet<_>>(),
            keys(&documentation["parameters"])
        );
    }
}
