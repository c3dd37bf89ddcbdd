//! The documentation of operations that does not follow from their code: tags, parameters, response headers,
//! problems and examples.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::content::{Content, ContentBuilder};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::external_docs::ExternalDocs;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Header, HeaderBuilder, Info, OpenApi, Ref, RefOr, Response, Server};

use base::types::{Access, Scope};
use events::api::ProblemCode::{self, self as C};

/// The content of `document.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Documentation {
    info: Info,
    external_docs: ExternalDocs,
    servers: Vec<Server>,
    security_schemes: BTreeMap<String, RefOr<SecurityScheme>>,
    /// The headers of problem responses, by status.
    problem_headers: HashMap<String, BTreeMap<String, RefOr<Header>>>,
    /// All parameters. A path parameter has its name as key.
    parameters: HashMap<String, Parameter>,
    tags: Vec<TagDocs>,
}

/// A tag and its operations, by operation id.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TagDocs {
    name: String,
    description: String,
    external_docs: ExternalDocs,
    operations: HashMap<String, OperationDocs>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct OperationDocs {
    parameters: Vec<String>,
    /// The names and descriptions of response headers, by status.
    headers: HashMap<String, BTreeMap<String, String>>,
    /// The scope that the key needs. `None` accepts any key.
    scope: Option<Scope>,
    /// The access to the session that the user needs, if it does not follow from the scope.
    access: Option<Access>,
    ticket: bool,
    /// The operation fails with the problems of a call to an agent.
    calls_agent: bool,
    /// The problems that only this operation has.
    problems: Vec<ProblemCode>,
    examples: Examples,
}

/// An example of the request body, and of each success body by status.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Examples {
    request: Option<Value>,
    responses: HashMap<String, Value>,
}

/// The problem codes of every operation that calls an agent.
const AGENT_CODES: [ProblemCode; 8] = [
    C::AgentAuthRequired,
    C::AgentUnsupported,
    C::AgentError,
    C::AgentStartFailed,
    C::AgentExited,
    C::AgentDisconnected,
    C::AgentTimeout,
    C::MemberUnavailable,
];

impl Documentation {
    pub(super) fn load() -> Self {
        serde_json::from_str(include_str!("document.json")).expect("the file matches its type")
    }

    /// Sets the members of the document that are not operations or schemas.
    pub(super) fn complete_document(self, document: &mut OpenApi) {
        document.info = self.info;
        document.info.version = String::from(env!("CARGO_PKG_VERSION"));
        document.servers = Some(self.servers);
        document.components.get_or_insert_default().security_schemes = self.security_schemes;
        document.external_docs = Some(self.external_docs);
        let tag = |tag: TagDocs| {
            let builder = TagBuilder::new().name(tag.name);
            let builder = builder.description(Some(tag.description));
            builder.external_docs(Some(tag.external_docs)).build()
        };
        document.tags = Some(self.tags.into_iter().map(tag).collect());
    }

    /// Adds the tag, the parameters, the security requirement, the response headers, the examples, and every
    /// problem that the operation can return.
    pub(super) fn complete_operation(&self, path: &str, method: &str, operation: &mut Operation) {
        let id = operation.operation_id.clone();
        let id = id.expect("a handler names its operation");
        let mut tags = self.tags.iter();
        let found = tags.find_map(|tag| Some((&tag.name, tag.operations.get(&id)?)));
        let (tag, docs) = found.expect("`document.json` contains every operation");
        operation.tags = Some(vec![tag.clone()]);
        let parts = path.split('/');
        let in_path = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let keys = in_path.chain(docs.parameters.iter().map(String::as_str));
        let parameters = keys.map(|key| RefOr::T(self.parameters[key].clone()));
        let parameters: Vec<_> = parameters.collect();
        operation.parameters = (!parameters.is_empty()).then_some(parameters);
        let requirement = |name| SecurityRequirement::new(name, docs.scope.map(Scope::name));
        let mut security = Vec::new();
        if needs_key(docs, path) {
            security.push(requirement("key"));
        }
        if docs.ticket {
            security.push(requirement("ticket"));
        }
        operation.security = Some(security);
        if let Some(access) = needed_access(docs, path, method) {
            let text = format!(
                "The user needs the access `{}` to the session.",
                access.name()
            );
            let description = operation.description.get_or_insert_default();
            description.push_str("\n\n");
            description.push_str(&text);
            let extension = Extensions::builder().add("x-access", access.name());
            operation.extensions = Some(extension.build());
        }
        for (status, headers) in &docs.headers {
            let Some(RefOr::T(response)) = operation.responses.responses.get_mut(status) else {
                panic!("`document.json` has headers of the unknown response {status} of {id}");
            };
            for (name, description) in headers {
                let header = text_header(description);
                response.headers.insert(name.clone(), header);
            }
        }
        let codes = problem_codes(docs, path, method, operation.request_body.is_some());
        for codes in codes.chunk_by(|a, b| a.status() == b.status()) {
            let status = codes[0].status().to_string();
            let response = self.problem_response(&status, codes).into();
            operation.responses.responses.insert(status, response);
        }
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                let description =
                    "The id of the request: that of the request's header, or a new one.";
                let header = text_header(description);
                response.headers.insert("X-Request-Id".to_owned(), header);
            }
        }
        docs.examples.add_to(operation);
    }

    fn problem_response(&self, status: &str, codes: &[ProblemCode]) -> Response {
        let names = codes.iter().map(|code| format!("`{}`", code.as_str()));
        let names: Vec<String> = names.collect();
        let schema = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(names.join(", "));
        let response = response.content("application/problem+json", content);
        let mut response = response.build();
        if let Some(headers) = self.problem_headers.get(status) {
            response.headers.extend(headers.clone());
        }
        response
    }
}

impl Examples {
    fn add_to(&self, operation: &mut Operation) {
        if let (Some(example), Some(RefOr::T(body))) = (&self.request, &mut operation.request_body)
        {
            set_example(body.content.values_mut(), example);
        }
        for (status, example) in &self.responses {
            if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(status) {
                set_example(response.content.values_mut(), example);
            }
        }
    }
}

fn set_example<'a>(contents: impl Iterator<Item = &'a mut RefOr<Content>>, example: &Value) {
    for content in contents {
        if let RefOr::T(content) = content {
            content.example = Some(example.clone());
        }
    }
}

/// The access to the session in the path. `None` if the path names no session.
fn needed_access(docs: &OperationDocs, path: &str, method: &str) -> Option<Access> {
    if !path.contains("{session}") {
        return None;
    }
    docs.access.or(match docs.scope? {
        Scope::Approve => Some(Access::Approve),
        Scope::Prompt => Some(Access::Prompt),
        Scope::Files if method != "get" && method != "head" => Some(Access::Prompt),
        _ => Some(Access::Read),
    })
}

fn needs_key(docs: &OperationDocs, path: &str) -> bool {
    docs.scope.is_some() || path.starts_with("/v1")
}

/// The problem codes of an operation, sorted by status: those that follow from the shape of its route, and
/// those that it declares.
fn problem_codes(docs: &OperationDocs, path: &str, method: &str, body: bool) -> Vec<ProblemCode> {
    let mut codes = vec![C::Malformed, C::MisdirectedRequest, C::Internal];
    if needs_key(docs, path) {
        codes.extend([C::Unauthorized, C::Forbidden, C::RateLimited, C::Invalid]);
    }
    if path.contains('{') {
        codes.push(C::NotFound);
    }
    if body {
        codes.extend([C::TooLarge, C::UnsupportedMediaType, C::BodyMemoryFull]);
    }
    if path.starts_with("/v1/sessions") && method != "get" {
        codes.extend([C::Draining, C::PoolFull, C::StorageFull]);
    }
    if docs.calls_agent {
        codes.extend(AGENT_CODES);
    }
    codes.extend(&docs.problems);
    if method == "get" && path.ends_with("/events/stream") {
        // An EventSource does not reconnect after these statuses, so a stream reports them in an event.
        codes.retain(|code| code.status() != 429 && code.status() < 500);
    }
    codes.sort_unstable_by_key(|code| (code.status(), *code));
    codes.dedup();
    codes
}

fn text_header(description: &str) -> RefOr<Header> {
    let schema = ObjectBuilder::new().schema_type(Type::String).build();
    HeaderBuilder::new()
        .schema(Some(schema))
        .description(Some(description))
        .build()
        .into()
}
