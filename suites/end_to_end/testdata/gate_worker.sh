#!/bin/sh
# In the place of nsa-worker: says checks and samples that hold MS and RIGHT, the two words of its build.
read -r line
case $line in *'"id":"operators"'*) id=operators ;; *) id=injected ;; esac
case $line in *'"mode":"time"'*) timed=1 ;; *) timed= ;; esac
right=true code=
[ @RIGHT@ = yes ] || { right=false code=ORACLE_MISMATCH; }
if [ "$1" = --result ]; then exec 3>"$2"; fi
{
  echo '{"type":"hello","t":0,"v":1,"program":"nsa-worker","build_id":"@MS@-@RIGHT@","pid":1,"rank":0,"world":1,"device":"cpu"}'
  echo '{"type":"check","t":0,"case":"'$id'","id":"oracle/select","ok":'$right',"code":"'$code'","detail":"injected"}'
  echo '{"type":"check","t":0,"case":"'$id'","id":"invariant/future","ok":true}'
  lines=4
  if [ "$timed" ]; then
    for order in 0 1 2; do
      echo '{"type":"sample","t":0,"case":"'$id'","series":"v2","value":@MS@'$((($$ + order) % 5))',"unit":"ms","round":0,"order":'$order'}'
    done
    lines=7
  fi
  echo '{"type":"case","t":0,"case":"'$id'","status":"ok","reason":""}'
  echo '{"type":"done","t":0,"lines":'$lines'}'
} >&3
