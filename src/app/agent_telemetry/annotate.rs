//! Adds attributes to the resources of an OTLP request, and copies everything else.
//!
//! The reader does not decode spans, metrics and log records: an empty span has two bytes, and its decoded form more than a
//! hundred. The requests of the three signals have the same outer form: resource blocks, each with a resource, which has
//! attributes.

use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// The number of `resource_spans`, `resource_metrics` and `resource_logs` in a request.
const BLOCK: u32 = 1;
/// The number of `resource` in a block.
const RESOURCE: u32 = 1;
/// The number of `attributes` in a resource.
const ATTRIBUTE: u32 = 1;
/// The number of `key` in an attribute.
const KEY: u32 = 1;

/// An SDK sends one block. Without a limit, small blocks with added attributes would become a large request.
const MAX_BLOCKS: usize = 256;

/// The keys of a resource that only the gateway sets.
const OWN_KEYS: &[u8] = b"acp_gateway.";
/// An agent with the name of another service would be that service for the dashboards of the operator.
const SERVICE_NAME: &[u8] = b"service.name";
/// The key of the name that the agent set.
const AGENT_SERVICE_NAME: &[u8] = b"acp_gateway.agent.service.name";

#[derive(Debug, thiserror::Error)]
pub(super) enum AnnotateError {
    #[error("the body is not an OTLP request in protobuf")]
    Protobuf,
    #[error("the request has more than {MAX_BLOCKS} resources")]
    TooManyBlocks,
}

impl From<prost::DecodeError> for AnnotateError {
    fn from(_: prost::DecodeError) -> Self {
        Self::Protobuf
    }
}

/// Replaces the attributes of resources that only the gateway sets. `added`: an encoded resource with the new attributes.
pub(super) fn annotate(request: &[u8], added: &[u8]) -> Result<Vec<u8>, AnnotateError> {
    let mut annotated = Vec::with_capacity(request.len() + added.len() + 16);
    let mut blocks = 0;
    for field in fields(request) {
        let field = field?;
        if field.number == BLOCK {
            blocks += 1;
            if blocks > MAX_BLOCKS {
                return Err(AnnotateError::TooManyBlocks);
            }
            let block = annotate_block(field.message()?, added)?;
            put_field(BLOCK, &block, &mut annotated);
        } else {
            annotated.extend_from_slice(field.bytes);
        }
    }
    Ok(annotated)
}

fn annotate_block(block: &[u8], added: &[u8]) -> Result<Vec<u8>, AnnotateError> {
    let mut resource: Vec<u8> = Vec::new();
    let mut others = Vec::new();
    for field in fields(block) {
        let field = field?;
        if field.number == RESOURCE {
            copy_resource(field.message()?, &mut resource)?;
        } else {
            others.extend_from_slice(field.bytes);
        }
    }
    // The concatenation of two messages is their union: it has the attributes of both.
    resource.extend_from_slice(added);
    let mut annotated = Vec::with_capacity(resource.len() + others.len() + 16);
    put_field(RESOURCE, &resource, &mut annotated);
    annotated.extend_from_slice(&others);
    Ok(annotated)
}

fn copy_resource(resource: &[u8], copy: &mut Vec<u8>) -> Result<(), AnnotateError> {
    for field in fields(resource) {
        let field = field?;
        if field.number != ATTRIBUTE {
            copy.extend_from_slice(field.bytes);
            continue;
        }
        let attribute = field.message()?;
        let key = key_of(attribute)?;
        if key == SERVICE_NAME {
            let mut renamed = attribute.to_vec();
            put_field(KEY, AGENT_SERVICE_NAME, &mut renamed);
            put_field(ATTRIBUTE, &renamed, copy);
        } else if !key.starts_with(OWN_KEYS) {
            copy.extend_from_slice(field.bytes);
        }
    }
    Ok(())
}

/// A decoder uses the last key.
fn key_of(attribute: &[u8]) -> Result<&[u8], AnnotateError> {
    let mut key: &[u8] = b"";
    for field in fields(attribute) {
        let field = field?;
        if field.number == KEY {
            key = field.message()?;
        }
    }
    Ok(key)
}

/// Appends a field with a message, a text or bytes.
pub(super) fn put_field(number: u32, value: &[u8], message: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, message);
    encode_varint(value.len() as u64, message);
    message.extend_from_slice(value);
}

struct Field<'a> {
    number: u32,
    /// The field with its key.
    bytes: &'a [u8],
    /// The value of a field with a length.
    value: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    fn message(&self) -> Result<&'a [u8], AnnotateError> {
        self.value.ok_or(AnnotateError::Protobuf)
    }
}

/// The fields of a message, in their order, up to the first error.
fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, AnnotateError>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        Some(next_field(&mut rest))
    })
}

fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, AnnotateError> {
    let message = *rest;
    let (number, wire_type) = decode_key(rest)?;
    let content = *rest;
    skip_field(wire_type, number, rest, DecodeContext::default())?;
    let mut value = &content[..content.len() - rest.len()];
    let value = if wire_type == WireType::LengthDelimited {
        decode_varint(&mut value)?;
        Some(value)
    } else {
        None
    };
    Ok(Field {
        number,
        bytes: &message[..message.len() - rest.len()],
        value,
    })
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn resource(attributes: &[(&str, &str)]) -> Resource {
        let attribute = |(key, value): &(&str, &str)| KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue((*value).to_owned())),
            }),
            ..KeyValue::default()
        };
        Resource {
            attributes: attributes.iter().map(attribute).collect(),
            ..Resource::default()
        }
    }

    fn request(resources: &[Option<Resource>]) -> ExportTraceServiceRequest {
        let span = Span {
            name: "work".to_owned(),
            ..Span::default()
        };
        let block = |resource: &Option<Resource>| ResourceSpans {
            resource: resource.clone(),
            scope_spans: vec![ScopeSpans {
                spans: vec![span.clone(), Span::default()],
                ..ScopeSpans::default()
            }],
            schema_url: "https://example/schema".to_owned(),
        };
        ExportTraceServiceRequest {
            resource_spans: resources.iter().map(block).collect(),
        }
    }

    #[test]
    fn every_resource_gets_the_attributes_and_nothing_else_changes() {
        let added = [("service.name", "a"), ("acp_gateway.agent", "a")];
        let own = ("service.version", "1");
        let sent = request(&[
            Some(resource(&[own])),
            None,
            Some(resource(&[
                ("acp_gateway.agent", "forged"),
                ("acp_gateway.agent.service.name", "forged"),
                ("service.name", "acp-gateway"),
                own,
                ("acp_gateway.session.id", "forged"),
            ])),
        ]);
        let encoded = resource(&added).encode_to_vec();
        let annotated = annotate(&sent.encode_to_vec(), &encoded).unwrap();
        let renamed = ("acp_gateway.agent.service.name", "acp-gateway");
        assert_eq!(
            ExportTraceServiceRequest::decode(&*annotated).unwrap(),
            request(&[
                Some(resource(&[own, added[0], added[1]])),
                Some(resource(&added)),
                Some(resource(&[renamed, own, added[0], added[1]])),
            ])
        );
    }

    #[test]
    fn unknown_fields_pass() {
        let mut sent = request(&[None]).encode_to_vec();
        let unknown = [0xf8, 0x01, 0x07];
        sent.extend(unknown);
        let annotated = annotate(&sent, b"").unwrap();
        assert!(annotated.ends_with(&unknown));
        assert_eq!(annotate(b"", b"").unwrap(), b"");
    }

    #[test]
    fn damaged_requests_are_rejected() {
        let sent = request(&[Some(resource(&[("service.name", "agent")]))]).encode_to_vec();
        assert!(annotate(&sent, b"").is_ok());
        for (damaged, what) in [
            (&sent[..sent.len() - 1], "truncated"),
            (b"{\"resourceSpans\":[]}", "JSON"),
            (&[0x08, 0x01], "a number instead of a block"),
            (&[0x0a, 0x02, 0x08, 0x01], "a number instead of a resource"),
            (&[0x0b; 1000], "groups without an end"),
        ] {
            assert!(
                matches!(annotate(damaged, b""), Err(AnnotateError::Protobuf)),
                "{what}"
            );
        }
    }

    #[test]
    fn number_of_blocks_is_bounded() {
        let empty_block = [0x0a, 0x00];
        assert!(annotate(&empty_block.repeat(MAX_BLOCKS), b"").is_ok());
        let one_more = empty_block.repeat(MAX_BLOCKS + 1);
        assert!(matches!(
            annotate(&one_more, b""),
            Err(AnnotateError::TooManyBlocks)
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_annotated_or_rejected(bytes: Vec<u8>) {
            if let Ok(annotated) = annotate(&bytes, b"") {
                prop_assert!(annotate(&annotated, b"").is_ok());
            }
        }
    }
}
