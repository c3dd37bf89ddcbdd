// Reports what a page does that a text must never make it do: scripts, dialogs, navigations, windows, downloads,
// elements and attributes that the page does not use, and changed prototypes. `Watch` reports requests, errors and
// violations of the policy.

import { Watch } from "./browser.mjs";

export class Guard {
  /** A page that reports everything to its `Watch`. `options.bypassCSP` removes the page's policy. */
  static async page(browser, origin, options) {
    const watch = await Watch.page(browser, origin, options);
    const guard = new Guard(watch);
    await guard.#install();
    return guard;
  }

  constructor(watch) {
    this.watch = watch;
    this.page = watch.page;
  }

  async #install() {
    const { page, watch } = this;
    const report = (words) => void watch.seen.push(words);
    watch.context.on("page", (other) => report(`window: ${other.url()}`));
    page.on("download", (download) => report(`download: ${download.url()}`));
    page.on("frameattached", (frame) => report(`frame: ${frame.url()}`));
    page.on("framenavigated", (frame) => {
      if (!frame.url().startsWith(`${watch.origin}/#`)) report(`navigation: ${frame.url()}`);
    });
    await page.exposeFunction("reportHarm", report);
    await page.addInitScript(watchPage);
  }

  /** Ends the page; anything that was reported fails the test. */
  async close() {
    const changed = await this.page.evaluate(() => window.changedPrototypes());
    this.watch.seen.push(...changed);
    await this.watch.close();
  }
}

/** Runs in the page before its scripts. */
function watchPage() {
  const harm = (words) => window.reportHarm(words.slice(0, 300));
  for (const name of ["alert", "confirm", "prompt", "print", "open", "msgbox"]) window[name] = () => harm(`script: ${name}`);

  const members = [Object, Array, String, Function, Promise, Element].map(({ prototype }) => [prototype, Reflect.ownKeys(prototype).length]);
  window.changedPrototypes = () => members.filter(([prototype, count]) => Reflect.ownKeys(prototype).length !== count).map(([prototype]) => `prototype: ${prototype}`);

  // All elements of the page. A new kind of element belongs into this list only if a text cannot make it harmful.
  const PAGE = "A ARTICLE ASIDE BDI BUTTON CODE DETAILS DIV FIELDSET FIGCAPTION FIGURE FOOTER FORM H1 H2 HEADER HR IMG INPUT KBD LABEL LEGEND LI MAIN NAV OL OPTGROUP OPTION P PRE PROGRESS SECTION SELECT SPAN STRONG SUMMARY TEXTAREA TIME UL path svg";
  const MARKDOWN = "A BLOCKQUOTE BR CODE DEL DIV EM H2 H3 H4 H5 H6 HR IMG LI OL P PRE STRONG TABLE TBODY TD TH THEAD TR UL";
  const MATHML = "math semantics mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle mpadded mphantom";
  const MATHML_ATTRIBUTES =
    "accent accentunder columnalign columnlines columnspacing depth display displaystyle fence height largeop linebreak linethickness lspace mathsize mathvariant maxsize minsize movablelimits notation rowlines rowspacing rspace scriptlevel separator stretchy tabindex voffset width";
  const MARKDOWN_ATTRIBUTES = "align alt href rel src start tabindex target title";
  const sets = Object.fromEntries(Object.entries({ PAGE, MARKDOWN, MARKDOWN_ATTRIBUTES, MATHML, MATHML_ATTRIBUTES }).map(([name, list]) => [name, new Set(list.split(" "))]));
  const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif);base64,[a-zA-Z\d+/]+=*$/;
  const isOwn = (url) => url.startsWith(`${location.origin}/assets/`);

  function check(element) {
    if (element.closest("head")) {
      const fine = ["TITLE", "META"].includes(element.nodeName) || (element.nodeName === "LINK" && isOwn(element.href)) || (element.nodeName === "SCRIPT" && isOwn(element.src));
      return fine ? undefined : harm(`head: ${element.outerHTML}`);
    }
    // The page itself creates the elements of a code block. A text cannot set the class.
    const markdown = element.closest(".code-block") ? null : (element.parentElement?.closest(".markdown") ?? null);
    const isMathml = markdown !== null && element.namespaceURI === "http://www.w3.org/1998/Math/MathML";
    const [elements, attributes] = isMathml ? [sets.MATHML, sets.MATHML_ATTRIBUTES] : [sets.MARKDOWN, sets.MARKDOWN_ATTRIBUTES];
    if (!(markdown ? elements : sets.PAGE).has(element.nodeName)) harm(`element: ${element.outerHTML}`);
    for (const { name, value } of element.attributes) {
      // The page sets the direction of each block, and marks long cells. A text can set neither.
      const isOfPage = (name === "dir" && value === "auto") || (name === "data-long" && value === "");
      const fine = markdown ? attributes.has(name) || isOfPage : !/^(on|srcdoc$|action$|formaction$|srcset$|xlink:|ping$)/.test(name);
      if (!fine) harm(`attribute ${name}: ${element.outerHTML}`);
    }
    if (element.nodeName === "A" && element.hasAttribute("href")) {
      const href = element.getAttribute("href");
      const away = /^(https?:\/\/|mailto:)/i.test(href) && element.target === "_blank" && element.rel === "noopener noreferrer";
      if (!away && (markdown || !/^(#\/|#main$|docs$)/.test(href))) harm(`link: ${element.outerHTML}`);
    }
    if (element.nodeName === "IMG" && !PICTURE.test(element.getAttribute("src") ?? "")) harm(`picture: ${element.outerHTML}`);
  }

  new MutationObserver((changes) => {
    for (const { type, target, addedNodes } of changes) {
      if (!document.body || (target.closest?.("#root") ?? null) === null) {
        if (type === "childList" && document.body && target !== document && ready) addedNodes.forEach((node) => node.nodeType === 1 && check(node));
        continue;
      }
      if (type === "attributes") check(target);
      for (const node of addedNodes) {
        if (node.nodeType !== 1) continue;
        check(node);
        node.querySelectorAll("*").forEach(check);
      }
    }
  }).observe(document, { childList: true, subtree: true, attributes: true });
  let ready = false;
  addEventListener("DOMContentLoaded", () => (ready = true));
}
