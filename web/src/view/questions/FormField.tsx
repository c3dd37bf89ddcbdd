// One field of a form, with its name, its description and its error.

import type { Choice, Field, Value } from "../../model/form";
import { strings } from "../../strings";
import { lookup } from "@acp-gateway/client/read";

interface Props {
  field: Field;
  id: string;
  value: Value;
  error: string | null;
  onChange(value: Value): void;
}

const TYPES: Record<string, string> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

export function FormField(props: Props) {
  const { field, id, error } = props;
  const group = field.control.kind === "choices";
  const Frame = group ? "fieldset" : "div";
  const name = (
    <>
      {field.label}
      {field.required ? <span className="needed"> {strings.questions.needed}</span> : null}
    </>
  );
  return (
    <Frame className="field" {...(group ? about(props) : {})}>
      {group ? (
        <legend className="field-name">{name}</legend>
      ) : (
        <label className={field.control.kind === "boolean" ? "field-name check" : "field-name"} htmlFor={id}>
          {field.control.kind === "boolean" && <Input {...props} />}
          <span>{name}</span>
        </label>
      )}
      {field.description && (
        <p className="field-about" id={`${id}-about`}>
          {field.description}
        </p>
      )}
      {field.control.kind !== "boolean" && <Input {...props} />}
      {error !== null && (
        <p className="field-wrong" id={`${id}-wrong`}>
          {error}
        </p>
      )}
    </Frame>
  );
}

/** The description of a field and its constraints. */
function about({ field, id, error }: Props) {
  const described = [field.description && `${id}-about`, error !== null && `${id}-wrong`].filter(Boolean).join(" ");
  return { ...(described ? { "aria-describedby": described } : {}), ...(error !== null ? { "aria-invalid": true } : {}) };
}

function Input(props: Props) {
  const { field, id, value, onChange } = props;
  const common = { id, ...about(props), "aria-required": field.required || undefined, "data-field": "" };
  const typed = typeof value === "string" ? value : "";
  switch (field.control.kind) {
    case "boolean":
      return <input {...common} aria-required={undefined} type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} />;
    case "choice":
      return <OneOf options={field.control.options} common={common} value={typed} needed={field.required} onChange={onChange} />;
    case "choices": {
      const chosen = Array.isArray(value) ? value : [];
      return (
        <ul className="choices">
          {field.control.options.map((option, index) => (
            <li key={option.value}>
              <label className="check">
                <input
                  type="checkbox"
                  {...(index === 0 ? { "data-field": "" } : {})}
                  checked={chosen.includes(option.value)}
                  onChange={(event) => onChange(event.target.checked ? [...chosen, option.value] : chosen.filter((one) => one !== option.value))}
                />
                <span>{words(option)}</span>
              </label>
            </li>
          ))}
        </ul>
      );
    }
    case "number": {
      const mode = field.control.whole && (field.control.min ?? -1) >= 0 ? "numeric" : "decimal";
      return <input {...common} type="text" inputMode={mode} autoComplete="off" value={typed} onChange={(event) => onChange(event.target.value)} />;
    }
    case "json":
      return <textarea {...common} className="mono" rows={2} spellCheck={false} value={typed} onChange={(event) => onChange(event.target.value)} />;
    case "text": {
      if (field.control.long) return <textarea {...common} rows={3} value={typed} onChange={(event) => onChange(event.target.value)} />;
      const type = lookup(TYPES, field.control.format) ?? "text";
      return <input {...common} type={type} value={typed} onChange={(event) => onChange(event.target.value)} />;
    }
  }
}

interface OneOfProps {
  options: Choice[];
  common: object;
  value: string;
  needed: boolean;
  onChange(value: string): void;
}

function OneOf({ options, common, value, needed, onChange }: OneOfProps) {
  return (
    <select {...common} value={value} onChange={(event) => onChange(event.target.value)}>
      {(!needed || value === "") && <option value="">{needed ? strings.questions.chooseOne : strings.questions.none}</option>}
      {options.map((option) => (
        <option key={option.value} value={option.value}>
          {words(option)}
        </option>
      ))}
    </select>
  );
}

function words(option: Choice): string {
  return option.description ? `${option.label}: ${option.description}` : option.label;
}
