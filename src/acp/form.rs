//! Parses the `requestedSchema` of a form and validates answers.
//!
//! The schema comes from an agent, and its cost must not exceed its size. Therefore the module keeps only the
//! keywords that ACP defines for forms: no references and no nesting. It compiles and matches patterns within
//! limits.

use jsonschema::{PatternOptions, Validator};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::raw_object::RawObject;
use crate::types::limits::{
    FORM_ANSWER_BYTES, FORM_BYTES, FORM_FIELDS, FORM_PATTERN_BACKTRACKS, FORM_PATTERN_BYTES,
    FORM_PATTERN_LENGTH,
};

/// A parsed form.
#[derive(Debug)]
pub(super) struct Form {
    fields: Vec<Field>,
    required: Vec<String>,
}

#[derive(Debug)]
struct Field {
    name: String,
    /// `None` for a type that a later version of ACP may define. The agent then validates the value itself.
    validator: Option<Validator>,
}

/// The reason why a form is invalid. The agent receives the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("requestedSchema exceeds {FORM_BYTES} bytes or {FORM_FIELDS} properties")]
    TooLarge,
    #[error("requestedSchema must be an object with properties, each an object with a type")]
    Malformed,
    #[error("requestedSchema requires {0:?}, which is not one of its properties")]
    Required(String),
    #[error("requestedSchema.properties.{0}.{1} is invalid or not supported")]
    Keyword(String, &'static str),
}

/// A part of an answer that does not match the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// A JSON pointer (RFC 6901) into the result.
    pub pointer: String,
    pub detail: String,
}

impl ValidationError {
    pub(super) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

/// The maximum number of reported errors. A person corrects only a few at a time.
const MAX_REPORTED_ERRORS: usize = 32;
/// The maximum size of one reported error in bytes.
const MAX_ERROR_BYTES: usize = 300;

impl Form {
    pub(super) fn parse(schema: &RawValue) -> Result<Self, FormError> {
        if schema.get().len() > FORM_BYTES {
            return Err(FormError::TooLarge);
        }
        let schema = RawObject::parse(schema).ok_or(FormError::Malformed)?;
        let properties = schema
            .get("properties")
            .map_or(Some(RawObject::empty()), RawObject::parse);
        let properties = properties.ok_or(FormError::Malformed)?;
        if properties.iter().count() > FORM_FIELDS {
            return Err(FormError::TooLarge);
        }
        let required: Vec<String> = match schema.get("required").filter(|raw| raw.get() != "null") {
            Some(required) => {
                serde_json::from_str(required.get()).map_err(|_| FormError::Malformed)?
            }
            None => Vec::new(),
        };
        if let Some(unknown) = required.iter().find(|name| properties.get(name).is_none()) {
            return Err(FormError::Required(unknown.clone()));
        }
        let fields = properties
            .iter()
            .map(|(name, property)| Field::parse(name, property));
        Ok(Self {
            fields: fields.collect::<Result<_, _>>()?,
            required,
        })
    }

    /// Validates the content of an answer and returns its errors, with pointers into the answer. The errors
    /// do not contain values, because values may be confidential.
    pub(super) fn validate(&self, content: Option<&RawValue>) -> Vec<ValidationError> {
        if content.is_some_and(|content| content.get().len() > FORM_ANSWER_BYTES) {
            let detail = format!("the answer to a form exceeds {FORM_ANSWER_BYTES} bytes");
            return vec![ValidationError::new("/content", detail)];
        }
        let Some(content) = content.map_or(Some(RawObject::empty()), RawObject::parse) else {
            return vec![ValidationError::new(
                "/content",
                "expected an object without repeated members",
            )];
        };
        let at = |name: &str| format!("/content/{}", name.replace('~', "~0").replace('/', "~1"));
        let missing = self
            .required
            .iter()
            .filter(|name| content.get(name).is_none());
        let mut violations: Vec<ValidationError> = missing
            .map(|name| ValidationError::new(at(name), "the form requires a value"))
            .collect();
        for (name, value) in content.iter() {
            match self.fields.iter().find(|field| field.name == name) {
                Some(field) => field.validate(value, &at(name), &mut violations),
                None => {
                    violations.push(ValidationError::new(at(name), "the form has no such field"));
                }
            }
            if violations.len() >= MAX_REPORTED_ERRORS {
                violations.truncate(MAX_REPORTED_ERRORS);
                break;
            }
        }
        violations
    }
}

impl Field {
    fn parse(name: &str, property: &RawValue) -> Result<Self, FormError> {
        let property = RawObject::parse(property).ok_or(FormError::Malformed)?;
        let kind = property.text("type").ok_or(FormError::Malformed)?;
        let keywords = Keywords {
            name,
            property: &property,
        };
        let Some(reduced) = keywords.supported_schema(&kind)? else {
            return Ok(Self {
                name: name.to_owned(),
                validator: None,
            });
        };
        let options = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .offline();
        let pattern = reduced
            .get("pattern")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let bytes = FORM_PATTERN_BYTES;
        let options = if !needs_backtracking(pattern) {
            options.with_pattern_options(
                PatternOptions::regex()
                    .size_limit(bytes)
                    .dfa_size_limit(bytes),
            )
        } else if is_backtracking_bounded(pattern) {
            let steps = PatternOptions::fancy_regex().backtrack_limit(FORM_PATTERN_BACKTRACKS);
            options.with_pattern_options(steps.size_limit(bytes).dfa_size_limit(bytes))
        } else {
            return Err(keywords.invalid_keyword("pattern"));
        };
        // `supported_schema` has already checked every other keyword.
        let validator = options
            .build(&reduced)
            .map_err(|_| keywords.invalid_keyword("pattern"))?;
        Ok(Self {
            name: name.to_owned(),
            validator: Some(validator),
        })
    }

    fn validate(&self, value: &RawValue, at: &str, violations: &mut Vec<ValidationError>) {
        let Some(validator) = &self.validator else {
            return;
        };
        let Ok(value) = serde_json::from_str::<Value>(value.get()) else {
            let detail = "a string with a lone surrogate, or a number out of range";
            return violations.push(ValidationError::new(at, detail));
        };
        for error in validator.iter_errors(&value).take(MAX_REPORTED_ERRORS) {
            let mut detail = error.masked_with("the value").to_string();
            detail.truncate(detail.floor_char_boundary(MAX_ERROR_BYTES));
            violations.push(ValidationError::new(
                format!("{at}{}", error.instance_path()),
                detail,
            ));
        }
    }
}

/// Returns true if the pattern requires a backtracking engine. All other patterns match in linear time.
fn needs_backtracking(pattern: &str) -> bool {
    let back = |pair: &[u8]| pair[0] == b'\\' && matches!(pair[1], b'1'..=b'9' | b'k');
    ["(?=", "(?!", "(?<=", "(?<!"]
        .iter()
        .any(|look| pattern.contains(look))
        || pattern.as_bytes().windows(2).any(back)
}

/// Returns true if the counted repetitions are bounded. The backtracking engine multiplies them without a
/// check for overflow.
fn is_backtracking_bounded(pattern: &str) -> bool {
    const MOST: u64 = 1 << 40;
    let counts = pattern
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(counts, _)| counts);
    let product = counts
        .flat_map(|counts| counts.split(','))
        .filter(|count| !count.trim().is_empty())
        .try_fold(1_u64, |product, count| match count.trim().parse::<u64>() {
            Ok(count) => product
                .checked_mul(count.max(1))
                .filter(|product| *product <= MOST),
            // A name of a character class, or a number that is too large.
            Err(_) if count.bytes().any(|byte| byte.is_ascii_alphabetic()) => Some(product),
            Err(_) => None,
        });
    product.is_some() && pattern.len() <= FORM_PATTERN_LENGTH
}

/// The keywords of one property.
struct Keywords<'a> {
    name: &'a str,
    property: &'a RawObject<'a>,
}

impl Keywords<'_> {
    fn invalid_keyword(&self, keyword: &'static str) -> FormError {
        FormError::Keyword(self.name.to_owned(), keyword)
    }

    /// Returns the schema of the property, reduced to the keywords of ACP. `None` if the type is unknown.
    fn supported_schema(&self, kind: &str) -> Result<Option<Value>, FormError> {
        let Some((_, keywords)) = KEYWORDS.iter().find(|(known, _)| *known == kind) else {
            return Ok(None);
        };
        let mut schema = Map::from_iter([("type".to_owned(), Value::from(kind))]);
        for (keyword, fits) in *keywords {
            if let Some(raw) = self.property.get(keyword).filter(|raw| raw.get() != "null") {
                schema.insert(
                    (*keyword).to_owned(),
                    self.keyword_value(raw, keyword, *fits)?,
                );
            }
        }
        if !schema
            .get("format")
            .is_none_or(|format| FORMATS.iter().any(|known| format == known))
        {
            schema.remove("format");
        }
        if kind == "string" {
            let consts = self.option_values(self.property, "oneOf")?;
            schema.extend(consts.map(|consts| ("allOf".to_owned(), json!([{ "enum": consts }]))));
        } else if kind == "array" {
            schema.extend(
                self.items_schema()?
                    .map(|items| ("items".to_owned(), items)),
            );
        }
        Ok(Some(Value::Object(schema)))
    }

    /// Returns the schema of an array's items. `None` if their type is unknown.
    fn items_schema(&self) -> Result<Option<Value>, FormError> {
        let items = self
            .property
            .object("items")
            .ok_or_else(|| self.invalid_keyword("items"))?;
        match items.text("type") {
            Some(kind) if kind != "string" => return Ok(None),
            _ => {}
        }
        let values = match items.get("enum") {
            Some(raw) => self.keyword_value(raw, "items", is_string_array)?,
            None => self
                .option_values(&items, "anyOf")?
                .ok_or_else(|| self.invalid_keyword("items"))?,
        };
        Ok(Some(json!({ "type": "string", "enum": values })))
    }

    /// Returns the values of titled options.
    fn option_values(
        &self,
        of: &RawObject<'_>,
        keyword: &'static str,
    ) -> Result<Option<Value>, FormError> {
        let Some(options) = of.get(keyword).filter(|raw| raw.get() != "null") else {
            return Ok(None);
        };
        let options = self.keyword_value(options, keyword, Value::is_array)?;
        let consts = options
            .as_array()
            .into_iter()
            .flatten()
            .map(|option| option["const"].clone());
        let consts = Value::Array(consts.collect());
        if is_string_array(&consts) {
            Ok(Some(consts))
        } else {
            Err(self.invalid_keyword(keyword))
        }
    }

    fn keyword_value(
        &self,
        raw: &RawValue,
        keyword: &'static str,
        fits: fn(&Value) -> bool,
    ) -> Result<Value, FormError> {
        let value = serde_json::from_str(raw.get()).ok().filter(fits);
        value.ok_or_else(|| self.invalid_keyword(keyword))
    }
}

/// A keyword with the check of its value.
type Keyword = (&'static str, fn(&Value) -> bool);

/// The keywords of each type.
const KEYWORDS: [(&str, &[Keyword]); 5] = [
    (
        "string",
        &[
            ("minLength", Value::is_u64),
            ("maxLength", Value::is_u64),
            ("pattern", Value::is_string),
            ("format", Value::is_string),
            ("enum", is_string_array),
        ],
    ),
    (
        "number",
        &[("minimum", Value::is_number), ("maximum", Value::is_number)],
    ),
    (
        "integer",
        &[("minimum", Value::is_number), ("maximum", Value::is_number)],
    ),
    ("boolean", &[]),
    (
        "array",
        &[("minItems", Value::is_u64), ("maxItems", Value::is_u64)],
    ),
];

/// The formats of ACP. Other formats are not validated.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

fn is_string_array(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|values| values.iter().all(Value::is_string))
}

#[cfg(test)]
mod tests;
