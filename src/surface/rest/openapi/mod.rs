//! The OpenAPI document: the operations that the routes declare, completed with the parts that all operations
//! share.

use std::sync::LazyLock;

use bytes::Bytes;
use http::HeaderValue;
use sha2::{Digest, Sha256};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{ComponentsBuilder, Header, HeaderBuilder, OpenApi, Ref, RefOr, Required};
use utoipa::{PartialSchema, ToSchema};

use super::routes::api_router;
use crate::api::{Problem, ProblemCode};
use crate::event::SessionEvent;
use crate::surface::embedded::etag;

mod about;
mod examples;
mod problems;
mod schemas;

/// The document as served.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) json: Bytes,
    pub(super) etag: HeaderValue,
}

/// The document is built on the first request, because it would dominate the start time and needs megabytes.
pub(super) fn served_document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
        let json = Bytes::from(document_json());
        let etag = etag(&Sha256::digest(&json).into());
        Document { json, etag }
    });
    &DOCUMENT
}

/// The complete document.
pub fn document() -> OpenApi {
    complete_document(api_router().into_openapi())
}

/// The document in the form of `openapi/openapi.json`.
pub fn document_json() -> String {
    pretty_json(&document())
}

fn pretty_json(document: &OpenApi) -> String {
    let mut text = document.to_pretty_json().expect("the document has only string keys");
    text.push('\n');
    text
}

fn complete_document(mut document: OpenApi) -> OpenApi {
    document.info = about::info();
    document.servers = Some(about::servers());
    document.tags = Some(about::tags());
    // The router marks a wildcard parameter with `*`, which OpenAPI does not know.
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            complete_operation(path, method, operation);
        }
    }
    let mut event_schemas = Vec::new();
    <SessionEvent as ToSchema>::schemas(&mut event_schemas);
    <Problem as ToSchema>::schemas(&mut event_schemas);
    let base = document.components.take().unwrap_or_default();
    let mut components = ComponentsBuilder::from(base)
        .schemas_from_iter(event_schemas)
        .schema("SessionEvent", SessionEvent::schema())
        .schema("Problem", Problem::schema())
        .security_scheme(
            "key",
            SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
        )
        .security_scheme("ticket", SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::new("ticket"))))
        .build();
    for name in ["SessionId", "PromptId", "RequestId", "TerminalId", "AgentName"] {
        components.schemas.entry(name.to_owned()).or_insert_with(|| path_schema(name));
    }
    components.schemas.values_mut().for_each(schemas::open_raw_objects);
    document.components = Some(components);
    document
}

fn path_schema(name: &str) -> RefOr<Schema> {
    use crate::types::{AgentName, PromptId, RequestId, SessionId, TerminalId};
    match name {
        "SessionId" => SessionId::schema(),
        "PromptId" => PromptId::schema(),
        "RequestId" => RequestId::schema(),
        "TerminalId" => TerminalId::schema(),
        _ => AgentName::schema(),
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [
        ("get", item.get.as_mut()),
        ("put", item.put.as_mut()),
        ("post", item.post.as_mut()),
        ("delete", item.delete.as_mut()),
        ("patch", item.patch.as_mut()),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation?)))
}

/// Adds the path parameters, the security requirement, and every problem that the operation can return.
fn complete_operation(path: &str, method: &str, operation: &mut Operation) {
    let mut parameters = path_parameters(path);
    let declared = operation.parameters.take().unwrap_or_default();
    parameters.extend(declared.into_iter().map(without_null_type));
    operation.parameters = (!parameters.is_empty()).then_some(parameters);
    let public = !path.starts_with("/v1");
    operation.security = Some(security(path, public));
    let id = operation.operation_id.clone().unwrap_or_default();
    let body = operation.request_body.is_some();
    let mut codes = problems::common_codes(path, method, body, public);
    codes.extend(problems::operation_codes(&id));
    if method == "get" && path.ends_with("/events/stream") {
        // An EventSource does not reconnect after these statuses, so a stream reports them in an event.
        codes.retain(|code| code.status() != 429 && code.status() < 500);
    }
    codes.sort_unstable_by_key(|code| (code.status(), *code));
    codes.dedup();
    for codes in codes.chunk_by(|a, b| a.status() == b.status()) {
        operation.responses.responses.insert(codes[0].status().to_string(), problem_response(codes));
    }
    examples::add_examples(&id, operation);
}

/// The alternatives for authentication: a key, and for streams also a ticket.
fn security(path: &str, public: bool) -> Vec<SecurityRequirement> {
    let names: &[&str] = match path {
        _ if public => &[],
        stream
            if ["/events", "/events/stream", "/auth/terminals/{signIn}"]
                .iter()
                .any(|end| stream.ends_with(end)) =>
        {
            &["key", "ticket"]
        }
        _ => &["key"],
    };
    names.iter().map(|name| SecurityRequirement::new(*name, Vec::<String>::new())).collect()
}

/// An optional parameter is absent from the URL or the headers. It cannot be null.
fn without_null_type(parameter: RefOr<Parameter>) -> RefOr<Parameter> {
    let RefOr::T(mut parameter) = parameter else { return parameter };
    parameter.schema = parameter.schema.map(without_null);
    RefOr::T(parameter)
}

fn without_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        RefOr::T(Schema::Object(mut object)) => {
            object.schema_type = non_null_type(object.schema_type);
            RefOr::T(Schema::Object(object))
        }
        RefOr::T(Schema::Array(mut array)) => {
            array.schema_type = non_null_type(array.schema_type);
            RefOr::T(Schema::Array(array))
        }
        RefOr::T(Schema::OneOf(mut union)) if union.items.len() == 2 => union.items.swap_remove(0),
        other => other,
    }
}

fn non_null_type(schema: SchemaType) -> SchemaType {
    match schema {
        SchemaType::Array(mut types) => {
            types.retain(|one| *one != Type::Null);
            if types.len() == 1 { SchemaType::Type(types.swap_remove(0)) } else { SchemaType::Array(types) }
        }
        other => other,
    }
}

fn path_parameters(path: &str) -> Vec<RefOr<Parameter>> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| -> RefOr<Parameter> {
        let schema: RefOr<Schema> = match name {
            "session" => Ref::from_schema_name("SessionId").into(),
            "prompt" => Ref::from_schema_name("PromptId").into(),
            "request" => Ref::from_schema_name("RequestId").into(),
            "terminal" => Ref::from_schema_name("TerminalId").into(),
            "agent" => Ref::from_schema_name("AgentName").into(),
            _ => ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).into(),
        };
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(schema))
            .build()
            .into()
    };
    names.map(parameter).collect()
}

fn problem_response(codes: &[ProblemCode]) -> RefOr<utoipa::openapi::Response> {
    let names: Vec<String> = codes.iter().map(|code| format!("`{}`", code.as_str())).collect();
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let response =
        ResponseBuilder::new().description(names.join(", ")).content("application/problem+json", content);
    let headers = problem_headers(codes[0].status()).into_iter();
    headers.fold(response, |response, (name, header)| response.header(name, header)).build().into()
}

/// The headers of a problem response with this status.
fn problem_headers(status: u16) -> Option<(&'static str, Header)> {
    let (name, kind, description) = match status {
        401 => ("WWW-Authenticate", Type::String, "The authentication scheme `Bearer`."),
        416 => ("Content-Range", Type::String, "The size of the file in bytes, as `bytes */SIZE`."),
        429 | 503 => ("Retry-After", Type::Integer, "The delay before a retry, in seconds."),
        _ => return None,
    };
    let schema = ObjectBuilder::new().schema_type(kind).build();
    Some((name, HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build()))
}
