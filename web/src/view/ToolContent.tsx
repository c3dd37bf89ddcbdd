// The content of a tool call: text, changes to files, and the output of commands.

import type { Raw, Terminal } from "@acp-gateway/client";
import { blocks, line, lookup, text, visible } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { ContentBlocks } from "./ContentBlocks";
import { DiffView } from "./DiffView";
import { TerminalBlock } from "./TerminalBlock";

export function ToolContent({ content, terminals }: { content: Raw[]; terminals: Record<string, Terminal> }) {
  return (
    <>
      {content.map((part, index) => (
        <Part key={index} part={part} terminals={terminals} />
      ))}
    </>
  );
}

function Part({ part, terminals }: { part: Raw; terminals: Record<string, Terminal> }) {
  switch (part["type"]) {
    case "content":
      return <ContentBlocks blocks={blocks([part["content"]])} />;
    case "diff":
      return <DiffView path={line(part["path"]) ?? ""} before={line(part["oldText"])} after={line(part["newText"]) ?? ""} />;
    case "terminal": {
      const terminalId = text(part["terminalId"]) ?? "";
      const terminal = lookup(terminals, terminalId);
      return terminal ? <TerminalBlock terminal={terminal} /> : <p className="reference">{strings.tools.terminal(visible(terminalId))}</p>;
    }
    default:
      return <p className="reference">{strings.content.unknown}</p>;
  }
}
