//! OpenAPI schemas of a transcript's items: one named schema for each `type`, and their union.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::schema::union;
use super::transcript::{
    ContextLost, TurnCompaction, TurnItem, TurnMessage, TurnNotice, TurnOther, TurnRequest,
    TurnSessionMessage, TurnSubagent, TurnTerminal, TurnToolCall,
};

/// The variants of [`TurnItem`] with their `type` in JSON.
macro_rules! items {
    ($($name:ident = $kind:literal;)*) => {
        const ITEMS: &[(&str, &str)] = &[$(($kind, stringify!($name))),*];

        fn item_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            $(
                <$name as ToSchema>::schemas(schemas);
                schemas.push((stringify!($name).to_owned(), of_type($kind, $name::schema())));
            )*
        }
    };
}

items! {
    TurnMessage = "message";
    TurnToolCall = "tool_call";
    TurnTerminal = "agent_terminal";
    TurnRequest = "request";
    TurnNotice = "notice";
    TurnCompaction = "compaction";
    TurnSubagent = "subagent";
    TurnSessionMessage = "session_message";
    ContextLost = "context_lost";
    TurnOther = "other";
}

/// Adds the member `type`, which serde writes before the members of the struct.
fn of_type(kind: &str, schema: RefOr<Schema>) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(mut item)) = schema else {
        unreachable!("items are derived from structs, which are objects");
    };
    let member = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some([kind]));
    item.properties.insert("type".to_owned(), member.into());
    item.required.insert(0, "type".to_owned());
    RefOr::T(Schema::Object(item))
}

impl PartialSchema for TurnItem {
    fn schema() -> RefOr<Schema> {
        union(
            "An item of a turn. `type` selects the schema. Clients must ignore unknown types.",
            ITEMS.iter().copied(),
        )
    }
}

impl ToSchema for TurnItem {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        item_schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::types::Timestamp;

    #[test]
    fn an_item_has_the_type_that_its_schema_names() {
        let item = TurnItem::ContextLost(ContextLost {
            at: Timestamp::from_millis(0),
        });
        let json = serde_json::to_value(item).unwrap();
        let named = ITEMS
            .iter()
            .find(|(_, name)| *name == "ContextLost")
            .map(|(kind, _)| *kind);
        assert_eq!(json["type"].as_str(), named);
        assert_eq!(ITEMS.len(), 10, "one for each variant");
    }
}
