// Writes src/schema.ts from the OpenAPI document: its schemas, and the list of event types. With `--check`, it only fails if the file differs.
//
// Of the document, only the schemas are needed: the client has the routes as methods. `typescript` of this package is a version
// whose compiler is a library, which the generator needs.

import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

/**
 * An open schema of a response as its known values alone: the union with `string`, or with any object, would lose them. `Open` adds the
 * other values again.
 */
function withoutOtherValues(schema) {
  const known = schema?.anyOf?.filter((one) => one.$ref?.startsWith("#/components/schemas/Known"));
  return known?.length ? { ...schema, anyOf: known } : schema;
}

const target = new URL("src/schema.ts", import.meta.url);
const document = JSON.parse(await readFile(new URL("../../../openapi/openapi.json", import.meta.url), "utf8"));
const { openapi, info, components } = JSON.parse(JSON.stringify(document), (_, value) => withoutOtherValues(value));
const tree = await openapiTS({ openapi, info, paths: {}, components: { schemas: components.schemas } }, { silent: true });
const named = (reference) => document.components.schemas[reference.split("/").pop()];
const eventTypes = named("KnownSessionEvent").oneOf.map(({ $ref }) => named($ref).properties.type.enum[0]);
const fresh = `// Generated from openapi/openapi.json by \`npm run types\`. Do not edit.

${astToString(tree)}
export const EVENT_TYPES = ${JSON.stringify(eventTypes, null, 2)} as const;
`;
if (!process.argv.includes("--check")) {
  await writeFile(target, fresh);
} else if (fresh !== (await readFile(target, "utf8").catch(() => ""))) {
  console.error("web/packages/client/src/schema.ts differs from openapi/openapi.json: run `npm run types` in web/ and commit the result");
  process.exitCode = 1;
}
