// Formulas of messages, as MathML. The page loads this part with the first message that may contain a formula.

import "../style/maths.css";
import { blocksOf, type Block } from "../view/renderBlocks";
import { placeFormulas } from "./place";
import { SYNTAX } from "./syntax";

export interface Maths {
  renderBlocks(markdown: string): Block[];
  placeFormulas(html: DocumentFragment): DocumentFragment;
}

export const maths: Maths = { renderBlocks: blocksOf(SYNTAX), placeFormulas };
