//! Opens the enums and unions of responses.
//!
//! A later version of the gateway adds values of enums and members of unions. A client whose code is generated from today's
//! document must be able to read them. A request stays closed: the gateway rejects a value that it does not know.
//!
//! An open schema is the union of the closed one, which is named `Known…`, and any other value. Requests refer to
//! the closed one. An object of both directions that contains such a schema has a copy for requests, named `…Input`.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::openapi::content::Content;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOf, AnyOfBuilder, ArrayItems, Object, ObjectBuilder, Schema,
    SchemaType, Type,
};
use utoipa::openapi::{OpenApi, PathItem, Ref, RefOr};

type Names = BTreeSet<String>;

const SCHEMAS: &str = "#/components/schemas/";

pub(super) fn open_responses(document: &mut OpenApi) {
    let mut components = document.components.take().unwrap_or_default();
    let schemas = &mut components.schemas;
    let graph: BTreeMap<String, Names> = schemas
        .iter()
        .map(|(name, schema)| (name.clone(), references(schema)))
        .collect();
    let mut in_requests = Names::new();
    each_request_schema(document, &mut |schema| {
        in_requests.extend(references(schema));
    });
    let in_requests = reachable(&graph, in_requests);
    let mut in_responses = Names::new();
    each_response_schema(document, &mut |schema| {
        in_responses.extend(references(schema));
    });
    // A schema that no operation names belongs to an event.
    in_responses.extend(
        graph
            .keys()
            .filter(|name| !in_requests.contains(*name))
            .cloned(),
    );
    let in_responses = reachable(&graph, in_responses);

    let open: Names = in_responses
        .iter()
        .filter(|name| schemas.get(*name).is_some_and(is_closed))
        .cloned()
        .collect();
    let split: Names = in_requests
        .intersection(&in_responses)
        .filter(|name| !open.contains(*name) && reaches(&graph, name, &open))
        .cloned()
        .collect();
    let mut rename = |location: &mut String| {
        let Some(name) = location.strip_prefix(SCHEMAS) else {
            return;
        };
        if open.contains(name) {
            *location = format!("{SCHEMAS}Known{name}");
        } else if split.contains(name) {
            *location = format!("{SCHEMAS}{name}Input");
        }
    };
    for name in in_requests.difference(&in_responses) {
        if let Some(schema) = schemas.get_mut(name) {
            visit(schema, &mut rename);
        }
    }
    for name in &split {
        let mut input = schemas[name].clone();
        visit(&mut input, &mut rename);
        schemas.insert(format!("{name}Input"), input);
    }
    each_request_schema(document, &mut |schema| visit(schema, &mut rename));
    for name in &open {
        let known = format!("Known{name}");
        let opened = open_schema(name, &schemas[name]);
        if let Some(closed) = schemas.insert(name.clone(), Schema::AnyOf(opened.union).into()) {
            schemas.insert(known, closed);
        }
        if let Some(unknown) = opened.unknown {
            schemas.insert(format!("Unknown{name}"), unknown.into());
        }
    }
    document.components = Some(components);
}

struct Opened {
    union: AnyOf,
    unknown: Option<Schema>,
}

fn open_schema(name: &str, closed: &RefOr<Schema>) -> Opened {
    let union = AnyOfBuilder::new().item(Ref::from_schema_name(format!("Known{name}")));
    let RefOr::T(Schema::OneOf(one_of)) = closed else {
        let description = match closed {
            RefOr::T(Schema::Object(object)) => object.description.clone(),
            _ => None,
        };
        let any = ObjectBuilder::new().schema_type(Type::String).build();
        let union = union.item(any).description(description).build();
        return Opened {
            union,
            unknown: None,
        };
    };
    let union = union
        .item(Ref::from_schema_name(format!("Unknown{name}")))
        .description(one_of.description.clone())
        .build();
    let tag = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("A value that this document does not list."))
        .build();
    let unknown = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("type", tag)
        .required("type")
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .description(Some(
            "A member of the union that a later version added. Ignore it.",
        ))
        .build();
    Opened {
        union,
        unknown: Some(unknown.into()),
    }
}

/// An enum of strings, or a union with a tag.
fn is_closed(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::Object(object)) => object.enum_values.is_some(),
        RefOr::T(Schema::OneOf(union)) => union.discriminator.is_some(),
        _ => false,
    }
}

fn references(schema: &RefOr<Schema>) -> Names {
    let mut names = Names::new();
    visit(&mut schema.clone(), &mut |location| {
        names.extend(location.strip_prefix(SCHEMAS).map(str::to_owned));
    });
    names
}

fn reachable(graph: &BTreeMap<String, Names>, from: Names) -> Names {
    let mut waiting: Vec<String> = from.into_iter().collect();
    let mut found = Names::new();
    while let Some(name) = waiting.pop() {
        if found.insert(name.clone()) {
            waiting.extend(graph.get(&name).into_iter().flatten().cloned());
        }
    }
    found
}

fn reaches(graph: &BTreeMap<String, Names>, name: &str, targets: &Names) -> bool {
    !reachable(graph, graph[name].clone()).is_disjoint(targets)
}

fn each_request_schema(document: &mut OpenApi, act: &mut dyn FnMut(&mut RefOr<Schema>)) {
    let items = document.paths.paths.values_mut();
    for operation in items.flat_map(operations).map(|(_, operation)| operation) {
        for parameter in operation.parameters.iter_mut().flatten() {
            if let RefOr::T(parameter) = parameter {
                parameter.schema.iter_mut().for_each(&mut *act);
            }
        }
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            each_content_schema(body.content.values_mut(), act);
        }
    }
}

fn each_response_schema(document: &mut OpenApi, act: &mut dyn FnMut(&mut RefOr<Schema>)) {
    let items = document.paths.paths.values_mut();
    for operation in items.flat_map(operations).map(|(_, operation)| operation) {
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                each_content_schema(response.content.values_mut(), act);
            }
        }
    }
}

fn each_content_schema<'a>(
    contents: impl Iterator<Item = &'a mut RefOr<Content>>,
    act: &mut dyn FnMut(&mut RefOr<Schema>),
) {
    for content in contents {
        if let RefOr::T(content) = content {
            content.schema.iter_mut().for_each(&mut *act);
        }
    }
}

fn visit(schema: &mut RefOr<Schema>, act: &mut dyn FnMut(&mut String)) {
    let schema = match schema {
        RefOr::Ref(reference) => return act(&mut reference.ref_location),
        RefOr::T(schema) => schema,
    };
    match schema {
        Schema::Object(object) => {
            for property in object.properties.values_mut() {
                visit(property, act);
            }
            if let Some(AdditionalProperties::RefOr(values)) =
                object.additional_properties.as_deref_mut()
            {
                visit(values, act);
            }
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                visit(items, act);
            }
        }
        Schema::OneOf(union) => {
            union.items.iter_mut().for_each(|item| visit(item, act));
            if let Some(discriminator) = &mut union.discriminator {
                discriminator.mapping.values_mut().for_each(act);
            }
        }
        Schema::AllOf(union) => union.items.iter_mut().for_each(|item| visit(item, act)),
        Schema::AnyOf(union) => union.items.iter_mut().for_each(|item| visit(item, act)),
        _ => {}
    }
}

pub(super) fn operations(
    item: &mut PathItem,
) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [
        ("get", &mut item.get),
        ("put", &mut item.put),
        ("post", &mut item.post),
        ("delete", &mut item.delete),
        ("patch", &mut item.patch),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Allows any member in objects that declare no members. Otherwise code generators treat them as empty
/// objects.
pub(super) fn open_raw_objects(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            if is_object(object)
                && object.properties.is_empty()
                && object.additional_properties.is_none()
            {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
            }
            object.properties.values_mut().for_each(open_raw_objects);
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                open_raw_objects(items);
            }
        }
        Schema::OneOf(union) => union.items.iter_mut().for_each(open_raw_objects),
        Schema::AllOf(union) => union.items.iter_mut().for_each(open_raw_objects),
        Schema::AnyOf(union) => union.items.iter_mut().for_each(open_raw_objects),
        _ => {}
    }
}

fn is_object(object: &Object) -> bool {
    match &object.schema_type {
        SchemaType::Type(only) => *only == Type::Object,
        SchemaType::Array(types) => types.contains(&Type::Object),
        SchemaType::AnyValue => false,
    }
}
