//! The part of the document about the API as a whole: title, server and tags.

use utoipa::openapi::info::License;
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Info, InfoBuilder, Server, ServerBuilder, Tag};

/// The tags of operations in the order of the documentation.
const TAGS: [(&str, &str); 10] = [
    ("sessions", "Create, find, change, close and delete sessions, and read their transcripts."),
    ("prompts", "Start turns, wait for them, and cancel them."),
    (
        "events",
        "The log of a session, of a turn, or of many sessions: page by page, or as Server-Sent Events.",
    ),
    ("requests", "Answer what an agent asks: permissions, forms, and requests that clients serve."),
    ("settings", "Modes and options of a session, and methods of its agent by name."),
    ("files", "Read and write the files of a session's folders."),
    ("terminals", "Commands that the gateway runs for an agent."),
    ("agents", "The catalogue of agents, their own sessions, and signing in to them."),
    ("gateway", "What a key allows, the limits that it meets, and tickets for streams."),
    ("operations", "Probes for an orchestrator; they need no key."),
];

pub(super) fn info() -> Info {
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    InfoBuilder::new()
        .title("acp-gateway")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "ACP agents over REST and Server-Sent Events. Every operation below `/v1` needs a key: `Authorization: Bearer KEY`. \
             Errors are `application/problem+json`. Within `/v1` members, event types and codes are only added: ignore those \
             that you do not know.",
        ))
        .license(Some(license))
        .build()
}

/// The gateway that serves the document. A client sets the address of its own.
pub(super) fn servers() -> Vec<Server> {
    vec![ServerBuilder::new().url("/").description(Some("The gateway that serves this document.")).build()]
}

pub(super) fn tags() -> Vec<Tag> {
    TAGS.iter()
        .map(|(name, description)| TagBuilder::new().name(*name).description(Some(*description)).build())
        .collect()
}
