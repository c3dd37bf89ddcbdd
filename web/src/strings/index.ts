// The texts that people read on the page, in English: `./en` has one file for each place of the page, and each text is an export.
// To add a text, add an export to the file of its place, and use it as `strings.<place>.<name>`. A text with a value is a function,
// and it contains the plural forms. In a text for the component `Words`, backticks enclose code and `{}` is the place of an
// element. Names of keys, names of the protocol, and punctuation between two texts stay in the components. A test finds texts
// that stand in components, and texts that nobody uses.
//
// To add a translation, copy `./en` to a folder with the code of the language, and translate the exports. The names of the
// exports and the parameters of the functions stay the same. Then select a folder here: `export * as strings from "./de"` builds
// a page in one language. For a choice at run time, import both folders and export one of the two as `strings`. The page then
// loads all texts of both, because the bundler cannot move single texts to the parts that use them. Two texts are outside of this
// folder: the attribute `lang` and the note for browsers without JavaScript, in `index.html`.

export * as strings from "./en";
