// Payloads that would run as a program or send a request in an unsafe page.

const HOST = "https://stranger.invalid";

export const PAYLOADS = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(2)>",
  "<svg onload=alert(3)><g/onload=alert(3)></svg>",
  "<svg><script>alert(4)</script></svg>",
  "[a link](javascript:alert(5))",
  "[a link](JaVaScRiPt&colon;alert(6))",
  "[a link](&#x6A;avascript:alert(7))",
  "[a link](data:text/html;base64,PHNjcmlwdD5hbGVydCg4KTwvc2NyaXB0Pg==)",
  "[by reference][r]\n\n[r]: javascript:alert(9)",
  "<javascript:alert(10)>",
  `![a picture](${HOST}/seen.png)`,
  `<img src="${HOST}/seen.png"><link rel=stylesheet href="${HOST}/x.css"><base href="${HOST}/">`,
  '![x](x"onerror="alert(11))',
  "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEyKSIgeG1sbnM9Imh0dHA6Ly93d3cudzMub3JnLzIwMDAvc3ZnIi8+)",
  '<iframe srcdoc="<script>parent.alert(13)</script>"></iframe><object data="javascript:alert(13)"></object>',
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(14)&gt;\">",
  '<noscript><p title="</noscript><img src=x onerror=alert(15)>">',
  '<form action="javascript:alert(16)"><button autofocus onfocus=alert(16) formaction="javascript:alert(16)">go</button></form>',
  "<details open ontoggle=alert(17)><summary>x</summary></details>",
  `<style>@import "${HOST}/x.css"; * { background: url(${HOST}/bg) }</style>`,
  '```"><img src=x onerror=alert(18)>\n</code></pre><script>alert(18)</script>\n```',
  '| a |\n| --- |\n| <img src=x onerror=alert(19)> [x](javascript:alert(19)) |',
  '[t](https://ok.example "\\" onmouseover=alert(20) x=\\"")',
  '<a href="javascript:alert(21)" style="position:fixed;inset:0">everywhere</a>',
  "<template><img src=x onerror=alert(22)></template><xmp><img src=x onerror=alert(22)></xmp>",
  "\u202Egnp.exe\u202C `\u202E` <b onclick=alert(23)>x</b>",
];
