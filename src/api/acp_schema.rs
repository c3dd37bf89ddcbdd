//! OpenAPI schemas of the parts of ACP that clients send or read: content blocks, updates, and the requests
//! of agents.
//!
//! The gateway passes these values through unchanged. The schemas name the members that a client acts on and
//! allow any other member.

use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::schema::union;

type Named = (String, RefOr<Schema>);

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn nullable() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null]))
}

/// An object that allows further members.
fn open_object(description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(description))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
}

/// The schema of a content block: in prompts, in messages, in `agent_message_chunk`.
#[derive(Debug)]
pub struct ContentBlock;

const BLOCKS: [(&str, &str); 5] = [
    ("text", "TextBlock"),
    ("image", "ImageBlock"),
    ("audio", "AudioBlock"),
    ("resource_link", "ResourceLinkBlock"),
    ("resource", "ResourceBlock"),
];

fn block(kind: &str, description: &str) -> ObjectBuilder {
    open_object(description).property("type", text().enum_values(Some([kind]))).required("type")
}

impl PartialSchema for ContentBlock {
    fn schema() -> RefOr<Schema> {
        let description = "A content block of ACP. `type` selects the schema. Agents with a later version of ACP may send other types.";
        union(description, BLOCKS)
    }
}

impl ToSchema for ContentBlock {
    fn schemas(schemas: &mut Vec<Named>) {
        let media = |kind, description| {
            block(kind, description)
                .property("data", text().description(Some("Base64.")))
                .required("data")
                .property("mimeType", text())
                .required("mimeType")
        };
        let blocks = [
            block("text", "A text.").property("text", text()).required("text"),
            media("image", "An image.").property("uri", nullable()),
            media("audio", "An audio recording."),
            block("resource_link", "A link to a file or another resource.")
                .property("uri", text())
                .required("uri")
                .property("name", text())
                .property("mimeType", nullable())
                .property("title", nullable())
                .property("description", nullable()),
            block("resource", "A file or another resource, with its content.")
                .property("resource", Ref::from_schema_name("EmbeddedResource"))
                .required("resource"),
        ];
        schemas
            .extend(BLOCKS.iter().zip(blocks).map(|((_, name), schema)| ((*name).to_owned(), schema.into())));
        let resource = open_object("The content of a resource: `text`, or `blob` in base64.")
            .property("uri", text())
            .required("uri")
            .property("mimeType", nullable())
            .property("text", text())
            .property("blob", text());
        schemas.push(("EmbeddedResource".to_owned(), resource.into()));
    }
}

/// The schema of `update` in `session.update`.
#[derive(Debug)]
pub struct AcpUpdate;

impl PartialSchema for AcpUpdate {
    fn schema() -> RefOr<Schema> {
        open_object("An update of ACP, exactly as the agent sent it. `sessionUpdate` is its kind, which determines the other members: an \
              `agent_message_chunk` has a ContentBlock in `content`, a `tool_call` has `toolCallId`, `title` and `status`.")
        .property("sessionUpdate", text())
        .required("sessionUpdate")
        .into()
    }
}

impl ToSchema for AcpUpdate {}

/// The schema of one of the `options` of a permission request.
#[derive(Debug)]
pub struct PermissionOption;

impl PartialSchema for PermissionOption {
    fn schema() -> RefOr<Schema> {
        open_object("An option of a permission request. Answer with its `optionId`.")
            .property("optionId", text())
            .required("optionId")
            .property("name", text())
            .property(
                "kind",
                text().description(Some("`allow_once`, `allow_always`, `reject_once`, `reject_always`.")),
            )
            .into()
    }
}

impl ToSchema for PermissionOption {}

/// The schema of `params` of a request of the agent.
#[derive(Debug)]
pub struct RequestParams;

impl PartialSchema for RequestParams {
    fn schema() -> RefOr<Schema> {
        let options = ArrayBuilder::new()
            .items(Ref::from_schema_name("PermissionOption"))
            .description(Some("Only in `session/request_permission`: the options that a client can select."));
        open_object("The params of a request as the agent sent them, but with the gateway's `sessionId`. `method` determines the members.")
            .property("sessionId", text())
            .property("options", options)
            .property("toolCall", open_object("Only in `session/request_permission`: the tool call that waits for permission."))
            .property("mode", text().description(Some("Only in `elicitation/create`: `form` or `url`.")))
            .property("message", text().description(Some("Only in `elicitation/create`: the question to the user.")))
            .property("requestedSchema", open_object("Only in `elicitation/create` with mode `form`: the JSON schema of the answer."))
            .into()
    }
}

impl ToSchema for RequestParams {
    fn schemas(schemas: &mut Vec<Named>) {
        schemas.push(("PermissionOption".to_owned(), PermissionOption::schema()));
    }
}
