//! Parses the `requestedSchema` of a form and validates answers.
//!
//! The schema comes from an agent, and its cost must not exceed its size. Therefore the module keeps only the
//! keywords that ACP defines for forms: no references and no nesting. It compiles and matches patterns within
//! limits.

use jsonschema::{PatternOptions, Validator};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::raw_object::RawObject;

/// The size in bytes of a form's `requestedSchema`, and the number of its properties. A larger form is
/// rejected with an error to the agent.
const FORM_BYTES: usize = 256 << 10;
const FORM_FIELDS: usize = 128;
/// The size in bytes of the answer to a form. A larger answer fails with 422.
const FORM_ANSWER_BYTES: usize = 64 << 10;
/// Cost limits of a pattern in a form. `FORM_PATTERN_BYTES` is the size of the compiled pattern, and
/// `FORM_PATTERN_LENGTH` is the length of a pattern with look-around. A larger pattern is rejected with an error
/// to the agent. `FORM_PATTERN_BACKTRACKS` limits the steps while an answer is matched. Beyond it, the answer
/// fails with 422.
const FORM_PATTERN_BYTES: usize = 1 << 20;
const FORM_PATTERN_LENGTH: usize = 1024;
const FORM_PATTERN_BACKTRACKS: usize = 10_000;

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

pub(super) fn found(errors: Vec<ValidationError>) -> Result<(), Vec<ValidationError>> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
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
        let properties = schema.get("properties");
        let properties = properties.map_or(Some(RawObject::empty()), RawObject::parse);
        let properties = properties.ok_or(FormError::Malformed)?;
        if properties.iter().count() > FORM_FIELDS {
            return Err(FormError::TooLarge);
        }
        let required = schema.value("required").map_or("[]", RawValue::get);
        let required: Vec<String> =
            serde_json::from_str(required).map_err(|_| FormError::Malformed)?;
        if let Some(unknown) = required.iter().find(|name| properties.get(name).is_none()) {
            return Err(FormError::Required(unknown.clone()));
        }
        let fields = properties.iter();
        let fields = fields.map(|(name, property)| Field::parse(name, property));
        let fields = fields.collect::<Result<_, _>>()?;
        Ok(Self { fields, required })
    }

    /// Validates the content of an answer and returns its errors, with pointers into the answer. The errors
    /// do not contain values, because values may be confidential.
    pub(super) fn validate(&self, content: Option<&RawValue>) -> Vec<ValidationError> {
        if content.is_some_and(|content| content.get().len() > FORM_ANSWER_BYTES) {
            let detail = format!("the answer to a form exceeds {FORM_ANSWER_BYTES} bytes");
            return vec![ValidationError::new("/content", detail)];
        }
        let Some(content) = content.map_or(Some(RawObject::empty()), RawObject::parse) else {
            let detail = "expected an object without repeated members";
            return vec![ValidationError::new("/content", detail)];
        };
        let at = |name: &str| format!("/content/{}", name.replace('~', "~0").replace('/', "~1"));
        let error = |name: &str, detail| ValidationError::new(at(name), detail);
        let required = self.required.iter();
        let missing = required.filter(|name| content.get(name).is_none());
        let missing = missing.map(|name| error(name, "the form requires a value"));
        let mut violations: Vec<_> = missing.collect();
        for (name, value) in content.iter() {
            match self.fields.iter().find(|field| field.name == name) {
                Some(field) => field.validate(value, &at(name), &mut violations),
                None => violations.push(error(name, "the form has no such field")),
            }
            if violations.len() >= MAX_REPORTED_ERRORS {
                break;
            }
        }
        violations.truncate(MAX_REPORTED_ERRORS);
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
        let named = |validator| Self {
            name: name.to_owned(),
            validator,
        };
        let Some(reduced) = keywords.supported_schema(&kind)? else {
            return Ok(named(None));
        };
        let options = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .offline();
        let pattern = reduced["pattern"].as_str().unwrap_or_default();
        let bytes = FORM_PATTERN_BYTES;
        let options = if !needs_backtracking(pattern) {
            let regex = PatternOptions::regex();
            options.with_pattern_options(regex.size_limit(bytes).dfa_size_limit(bytes))
        } else if is_backtracking_bounded(pattern) {
            let steps = PatternOptions::fancy_regex().backtrack_limit(FORM_PATTERN_BACKTRACKS);
            options.with_pattern_options(steps.size_limit(bytes).dfa_size_limit(bytes))
        } else {
            return Err(keywords.invalid_keyword("pattern"));
        };
        // `supported_schema` has already checked every other keyword.
        let validator = options.build(&reduced);
        let validator = validator.map_err(|_| keywords.invalid_keyword("pattern"))?;
        Ok(named(Some(validator)))
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
            let pointer = format!("{at}{}", error.instance_path());
            violations.push(ValidationError::new(pointer, detail));
        }
    }
}

/// Returns true if the pattern requires a backtracking engine. All other patterns match in linear time.
fn needs_backtracking(pattern: &str) -> bool {
    let back = |pair: &[u8]| pair[0] == b'\\' && matches!(pair[1], b'1'..=b'9' | b'k');
    let looks = ["(?=", "(?!", "(?<=", "(?<!"];
    looks.iter().any(|look| pattern.contains(look)) || pattern.as_bytes().windows(2).any(back)
}

fn is_backtracking_bounded(pattern: &str) -> bool {
    const MOST: u64 = 1 << 40;
    let counts = pattern.split('{').skip(1);
    let counts = counts.filter_map(|rest| rest.split_once('}'));
    let mut counts = counts.flat_map(|(counts, _)| counts.split(',').map(str::trim));
    let product = counts.try_fold(1_u64, |product, count| match count.parse::<u64>() {
        Ok(count) => (product.checked_mul(count.max(1))).filter(|product| *product <= MOST),
        // A name of a character class, or a number that is too large.
        Err(_) if count.is_empty() || count.contains(|c: char| c.is_ascii_alphabetic()) => {
            Some(product)
        }
        Err(_) => None,
    });
    product.is_some() && pattern.len() <= FORM_PATTERN_LENGTH
}

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
            if let Some(raw) = self.property.value(keyword) {
                let value = self.keyword_value(raw, keyword, *fits)?;
                schema.insert((*keyword).to_owned(), value);
            }
        }
        let is_known = |format: &Value| FORMATS.iter().any(|known| format == known);
        if !schema.get("format").is_none_or(is_known) {
            schema.remove("format");
        }
        if kind == "string" {
            let consts = self.option_values(self.property, "oneOf")?;
            schema.extend(consts.map(|consts| ("allOf".to_owned(), json!([{ "enum": consts }]))));
        } else if kind == "array" {
            let items = self.items_schema()?;
            schema.extend(items.map(|items| ("items".to_owned(), items)));
        }
        Ok(Some(Value::Object(schema)))
    }

    /// Returns the schema of an array's items. `None` if their type is unknown.
    fn items_schema(&self) -> Result<Option<Value>, FormError> {
        let invalid = || self.invalid_keyword("items");
        let items = self.property.object("items").ok_or_else(invalid)?;
        if items.text("type").is_some_and(|kind| kind != "string") {
            return Ok(None);
        }
        let values = match items.get("enum") {
            Some(raw) => self.keyword_value(raw, "items", is_string_array)?,
            None => self.option_values(&items, "anyOf")?.ok_or_else(invalid)?,
        };
        Ok(Some(json!({ "type": "string", "enum": values })))
    }

    fn option_values(
        &self,
        of: &RawObject<'_>,
        keyword: &'static str,
    ) -> Result<Option<Value>, FormError> {
        let Some(options) = of.value(keyword) else {
            return Ok(None);
        };
        let options = self.keyword_value(options, keyword, Value::is_array)?;
        let options = options.as_array().into_iter().flatten();
        let consts = Value::Array(options.map(|option| option["const"].clone()).collect());
        let valid = is_string_array(&consts).then_some(consts);
        valid.ok_or_else(|| self.invalid_keyword(keyword)).map(Some)
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

type Keyword = (&'static str, fn(&Value) -> bool);

const TEXT: [Keyword; 5] = [
    ("minLength", Value::is_u64),
    ("maxLength", Value::is_u64),
    ("pattern", Value::is_string),
    ("format", Value::is_string),
    ("enum", is_string_array),
];
const NUMBER: [Keyword; 2] = [("minimum", Value::is_number), ("maximum", Value::is_number)];
const ARRAY: [Keyword; 2] = [("minItems", Value::is_u64), ("maxItems", Value::is_u64)];
const KEYWORDS: [(&str, &[Keyword]); 5] = [
    ("string", &TEXT),
    ("number", &NUMBER),
    ("integer", &NUMBER),
    ("boolean", &[]),
    ("array", &ARRAY),
];

/// The formats of ACP. Other formats are not validated.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

fn is_string_array(value: &Value) -> bool {
    (value.as_array()).is_some_and(|values| values.iter().all(Value::is_string))
}

#[cfg(test)]
mod tests;
