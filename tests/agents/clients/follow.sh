#!/usr/bin/env bash
# Follows a stream through cuts and restarts, and prints the data of each event: follow.sh URL KEY
url=$1 key=$2 last_id='' last=''
while [[ $last != end ]]; do
  last=cut id='' data=''
  while IFS= read -r line; do
    case $line in
      'id: '*) id=${line#id: } ;;
      'data: '*) data=${line#data: } ;;
      '')
        printf '%s\n' "$data"
        last=${data#*'"type":"'} last=${last%%\"*}
        last_id=${id:-$last_id} id='' data=''
        ;;
    esac
  done < <(curl --silent --no-buffer --fail "$url" -H "Authorization: Bearer $key" -H 'Accept: text/event-stream' \
    ${last_id:+-H "Last-Event-ID: $last_id"})
  [[ $last == end || $last == shutdown ]] || last=cut
  printf 'closed: %s\n' "$last" >&2
  [[ $last == end ]] || sleep 1
done
