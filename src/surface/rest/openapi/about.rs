//! The description of the API as a whole: title, server and tags.

use utoipa::openapi::info::License;
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Info, InfoBuilder, Server, ServerBuilder, Tag};

/// The tags of the operations, in the order of the documentation.
const TAGS: [(&str, &str); 10] = [
    ("sessions", "Create, list, change, close and delete sessions, and read their transcripts."),
    ("prompts", "Start turns, wait for them, and cancel them."),
    (
        "events",
        "The events of a session, of a turn, or of many sessions: as pages, or as Server-Sent Events.",
    ),
    ("requests", "Answer the requests of an agent: permissions, forms, and requests that clients serve."),
    ("settings", "Set the modes and options of a session, and call methods of its agent by name."),
    ("files", "Read and write files in the folders of a session."),
    ("terminals", "Read and kill the commands that the gateway runs for an agent."),
    ("agents", "List the agents and the sessions that they store, and sign in to them."),
    ("gateway", "Read the scopes and limits of a key, and create tickets for streams."),
    ("operations", "Probes for an orchestrator. They need no key."),
];

pub(super) fn info() -> Info {
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    InfoBuilder::new()
        .title("acp-gateway")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "ACP agents over REST and Server-Sent Events. Every operation under `/v1` requires a key: \
             `Authorization: Bearer KEY`. Errors are `application/problem+json`. Within `/v1`, members, event types \
             and codes are only added. Ignore the ones that you do not know. A stream is Server-Sent Events (WHATWG HTML, \
             section 9.2): `id` is the position of the event, and `Last-Event-ID` or `after` continues behind it. A complete \
             stream ends with `end`. The guides are in `docs/guides` of the source, the reference is in `docs/reference`.",
        ))
        .license(Some(license))
        .build()
}

/// The gateway that serves the document. Clients replace it with their own address.
pub(super) fn servers() -> Vec<Server> {
    vec![ServerBuilder::new().url("/").description(Some("The gateway that serves this document.")).build()]
}

pub(super) fn tags() -> Vec<Tag> {
    TAGS.iter()
        .map(|(name, description)| TagBuilder::new().name(*name).description(Some(*description)).build())
        .collect()
}
