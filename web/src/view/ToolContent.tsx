// The content of a tool call: text, changes to files, and the output of commands.

import type { Raw } from "../api/types";
import { blocks, line, text } from "../model/read";
import type { Terminal } from "../model/state";
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
      const terminal = Object.hasOwn(terminals, terminalId) ? terminals[terminalId] : undefined;
      return terminal ? <TerminalBlock terminal={terminal} /> : <p className="reference">Terminal {terminalId}</p>;
    }
    default:
      return <p className="reference">Content of a kind that this page does not show</p>;
  }
}
