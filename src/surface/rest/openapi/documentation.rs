//! The documentation of operations that does not follow from their code: tags, parameters, response headers,
//! problems and examples.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::openapi::content::{Content, ContentBuilder};
use utoipa::openapi::external_docs::ExternalDocs;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Header, HeaderBuilder, Info, OpenApi, Ref, RefOr, Response, Server};

use base::types::Scope;
use events::api::ProblemCode::{self, self as C};

/// The content of `document.json`, and the examples of `examples.json` by operation id.
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
    #[serde(skip)]
    examples: HashMap<String, Examples>,
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
    ticket: bool,
    /// The operation fails with the problems of a call to an agent.
    calls_agent: bool,
    /// The problems that only this operation has.
    problems: Vec<ProblemCode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Examples {
    request: Option<Value>,
    #[serde(default)]
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
        let examples = parse(include_str!("examples.json"));
        Self {
            examples,
            ..parse(include_str!("document.json"))
        }
    }

    /// Sets the members of the document that are not operations or schemas.
    pub(super) fn complete_document(self, document: &mut OpenApi) {
        document.info = self.info;
        document.info.version = String::from(env!("CARGO_PKG_VERSION"));
        document.servers = Some(self.servers);
        document.components.get_or_insert_default().security_schemes = self.security_schemes;
        document.external_docs = Some(self.external_docs);
        let tag = |tag: TagDocs| {
            let docs = Some(tag.external_docs);
            TagBuilder::new()
                .name(tag.name)
                .description(Some(tag.description))
                .external_docs(docs)
                .build()
        };
        document.tags = Some(self.tags.into_iter().map(tag).collect());
    }

    /// Adds the tag, the parameters, the security requirement, the response headers, the examples, and every
    /// problem that the operation can return.
    pub(super) fn complete_operation(&self, path: &str, method: &str, operation: &mut Operation) {
        let id = operation
            .operation_id
            .clone()
            .expect("a handler names its operation");
        let found = self
            .tags
            .iter()
            .find_map(|tag| Some((&tag.name, tag.operations.get(&id)?)));
        let (tag, docs) = found.expect("`document.json` has every operation");
        operation.tags = Some(vec![tag.clone()]);
        let in_path = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let keys = in_path.chain(docs.parameters.iter().map(String::as_str));
        let parameters: Vec<_> = keys
            .map(|key| RefOr::T(self.parameters[key].clone()))
            .collect();
        operation.parameters = (!parameters.is_empty()).then_some(parameters);
        let public = !path.starts_with("/v1");
        let credentials = [("key", !public), ("ticket", docs.ticket)]
            .into_iter()
            .filter(|(_, used)| *used);
        let requirement = |(name, _)| SecurityRequirement::new(name, docs.scope.map(Scope::name));
        operation.security = Some(credentials.map(requirement).collect());
        for (status, headers) in &docs.headers {
            let Some(RefOr::T(response)) = operation.responses.responses.get_mut(status) else {
                panic!("`document.json` has headers of the unknown response {status} of {id}");
            };
            let text =
                |(name, description): (&String, &String)| (name.clone(), text_header(description));
            response.headers.extend(headers.iter().map(text));
        }
        let codes = problem_codes(docs, path, method, operation.request_body.is_some());
        for codes in codes.chunk_by(|a, b| a.status() == b.status()) {
            let status = codes[0].status().to_string();
            let response = self.problem_response(&status, codes);
            operation
                .responses
                .responses
                .insert(status, response.into());
        }
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                let header = text_header(
                    "The id of the request: that of the request's header, or a new one.",
                );
                response
                    .headers
                    .insert(String::from("X-Request-Id"), header);
            }
        }
        if let Some(examples) = self.examples.get(&id) {
            examples.add_to(operation);
        }
    }

    fn problem_response(&self, status: &str, codes: &[ProblemCode]) -> Response {
        let names: Vec<String> = codes
            .iter()
            .map(|code| format!("`{}`", code.as_str()))
            .collect();
        let content = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .build();
        let response = ResponseBuilder::new().description(names.join(", "));
        let mut response = response
            .content("application/problem+json", content)
            .build();
        response.headers.extend(
            self.problem_headers
                .get(status)
                .cloned()
                .unwrap_or_default(),
        );
        response
    }
}

impl Examples {
    fn add_to(&self, operation: &mut Operation) {
        let set = |content: &mut RefOr<Content>, example: &Value| {
            if let RefOr::T(content) = content {
                content.example = Some(example.clone());
            }
        };
        if let (Some(example), Some(RefOr::T(body))) = (&self.request, &mut operation.request_body)
        {
            body.content
                .values_mut()
                .for_each(|content| set(content, example));
        }
        for (status, example) in &self.responses {
            if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(status) {
                response
                    .content
                    .values_mut()
                    .for_each(|content| set(content, example));
            }
        }
    }
}

/// The problem codes of an operation, sorted by status: those that follow from the shape of its route, and
/// those that it declares.
fn problem_codes(docs: &OperationDocs, path: &str, method: &str, body: bool) -> Vec<ProblemCode> {
    let mut codes = vec![C::Malformed, C::MisdirectedRequest, C::Internal];
    let shapes: [(bool, &[ProblemCode]); 5] = [
        (
            path.starts_with("/v1"),
            &[C::Unauthorized, C::Forbidden, C::RateLimited, C::Invalid],
        ),
        (path.contains('{'), &[C::NotFound]),
        (
            body,
            &[C::TooLarge, C::UnsupportedMediaType, C::BodyMemoryFull],
        ),
        (
            path.starts_with("/v1/sessions") && method != "get",
            &[C::Draining, C::PoolFull, C::StorageFull],
        ),
        (docs.calls_agent, &AGENT_CODES),
    ];
    codes.extend(
        shapes
            .into_iter()
            .filter(|(holds, _)| *holds)
            .flat_map(|(_, codes)| codes),
    );
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

fn parse<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect("the file matches its type")
}
