//! Schemas that cannot be derived from types.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, Object, Schema, SchemaType, Type};

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
