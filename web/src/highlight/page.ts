// The highlighter of the page, and the start of its worker.

import { scriptAddress } from "../scripts";
import { Highlighter } from "./highlighter";

export const highlighter = new Highlighter(() => new Worker(scriptAddress("highlighter"), { type: "module" }));
